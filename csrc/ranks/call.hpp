// Calls of the kernels by which a MoE layer's tokens travel between ranks. Results are allocated in
// deep_gemm/mega_moe_ranks.py, which checks what a user gives.
#pragma once

#include "group.hpp"

namespace deep_gemm {

/// `tokens` of this rank, and at most `bound` of any.
void exchange_choices(const Group& group, const TensorView& ids, const TensorView& row_weights, int64_t first_token,
                      int64_t tokens, int64_t bound, int64_t experts);
void pull_rows(const Group& group, const TensorView& source, const TensorView& out, const TensorView& out_scales,
               const TokenRange& range);
void push_rows(const Group& group, const TensorView& source, const TensorView& down, const TokenRange& range);
void combine_results(const Group& group, const TensorView& out, int64_t choices, int64_t num_experts);

}  // namespace deep_gemm
