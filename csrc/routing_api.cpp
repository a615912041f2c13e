// Routing kernels, as deep_gemm/_routing.py calls them.
#include "routing/call.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

// What is written has the place that borrowing functions have for it.

bool route_tokens(const TensorView& ids, const OptionalTensor& weights, const OptionalTensor& row_weights,
                  const OptionalTensor& indices, const TensorView& row_of, const TensorView& source,
                  const TensorView& ends, const TensorView& counts, bool masked, int64_t alignment) {
    route({ids, weights, row_weights, indices, row_of, source, ends, counts}, masked, alignment);
    return true;
}

bool gather(const TensorView& x, const OptionalTensor& scales, const TensorView& source,
            const OptionalTensor& out_scales, const TensorView& out, int64_t choices, bool clear) {
    gather_rows({x, scales, source, out_scales, out}, choices, clear);
    return true;
}

bool combine(const TensorView& x, const OptionalTensor& weights, const TensorView& row_of, const OptionalTensor&,
             const TensorView& out) {
    combine_rows({x, weights, row_of, out});
    return true;
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(route, deep_gemm::route_tokens);
DEEP_GEMM_EXPORT(gather_rows, deep_gemm::gather);
DEEP_GEMM_EXPORT(combine_rows, deep_gemm::combine);
