// How a MoE layer's tokens travel between ranks, as deep_gemm/mega_moe_ranks.py calls it.
#include "ranks/call.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using ffi::Integers;

/// `range`: first token, tokens of each rank, choices of a token.
TokenRange range_of(const Integers& range) { return {range[0], range[1], range[2]}; }

void choices(const Integers& ranks, const TensorView& calls, const TensorView& ids, const TensorView& row_weights,
             int64_t first_token, int64_t tokens, int64_t bound, int64_t experts) {
    exchange_choices({ranks, calls}, ids, row_weights, first_token, tokens, bound, experts);
}
void pull(const Integers& ranks, const TensorView& calls, const TensorView& source, const TensorView& out,
          const TensorView& out_scales, const Integers& range) {
    pull_rows({ranks, calls}, source, out, out_scales, range_of(range));
}
void push(const Integers& ranks, const TensorView& calls, const TensorView& source, const TensorView& down,
          const Integers& range) {
    push_rows({ranks, calls}, source, down, range_of(range));
}
void combine(const Integers& ranks, const TensorView& calls, const TensorView& out, int64_t choices,
             int64_t num_experts) {
    combine_results({ranks, calls}, out, choices, num_experts);
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(exchange_choices, deep_gemm::choices);
DEEP_GEMM_EXPORT(pull_rows, deep_gemm::pull);
DEEP_GEMM_EXPORT(push_rows, deep_gemm::push);
DEEP_GEMM_EXPORT(combine_results, deep_gemm::combine);
