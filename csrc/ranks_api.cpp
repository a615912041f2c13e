// How a MoE layer's tokens travel between ranks, as deep_gemm/mega_moe_ranks.py calls it.
#include "ranks/call.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using ffi::Integers;

void choices(const Integers& ranks, const TensorView& calls, const TensorView& ids, const TensorView& row_weights,
             int64_t tokens, int64_t experts) {
    exchange_choices({ranks, calls}, ids, row_weights, tokens, experts);
}
void pull(const Integers& ranks, const TensorView& calls, const TensorView& source, const TensorView& out,
          const TensorView& out_scales, int64_t room, int64_t choices) {
    pull_rows({ranks, calls}, source, out, out_scales, room, choices);
}
void push(const Integers& ranks, const TensorView& calls, const TensorView& source, const TensorView& down,
          int64_t room, int64_t choices) {
    push_rows({ranks, calls}, source, down, room, choices);
}
void combine(const Integers& ranks, const TensorView& calls, const TensorView& down, const TensorView& row_of,
             const TensorView& out, int64_t experts, int64_t num_experts) {
    combine_results({ranks, calls}, down, row_of, out, experts, num_experts);
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(exchange_choices, deep_gemm::choices);
DEEP_GEMM_EXPORT(pull_rows, deep_gemm::pull);
DEEP_GEMM_EXPORT(push_rows, deep_gemm::push);
DEEP_GEMM_EXPORT(combine_results, deep_gemm::combine);
