// Calls of the kernels by which a MoE layer's tokens travel between ranks. Results are allocated in
// deep_gemm/mega_moe_ranks.py, which checks what a user gives.
#pragma once

#include <deep_gemm/ranks/config.cuh>

#include "../api/call/tensors.hpp"
#include "../util/ffi.hpp"

namespace deep_gemm {

/// A rank's view of its group: rank, timeout in ns, bytes of a part, where ids, weights, x, its scales and results
/// begin in one, then each rank's part as an address.
struct Group {
    const ffi::Integers& numbers;
    const TensorView& calls;  // int32 [1]: how many calls there were
};

void exchange_choices(const Group& group, const TensorView& ids, const TensorView& row_weights, int64_t tokens,
                      int64_t experts);
void pull_rows(const Group& group, const TensorView& source, const TensorView& out, const TensorView& out_scales,
               int64_t room, int64_t choices);
void push_rows(const Group& group, const TensorView& source, const TensorView& down, int64_t room, int64_t choices);
void combine_results(const Group& group, const TensorView& down, const TensorView& row_of, const TensorView& out,
                     int64_t experts, int64_t num_experts);

}  // namespace deep_gemm
