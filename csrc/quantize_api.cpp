// Quantise kernels, as deep_gemm/_quantize.py calls them. Results are allocated there; here they are checked and
// filled.
#include "quantize/call.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

/// q has the place that borrowing functions have for what they write.
bool quantize(const TensorView& x, const OptionalTensor& layout, const OptionalTensor& row_scale, const TensorView& s,
              const TensorView& q, const OptionalTensor& zeros, const OptionalTensor& sums, const OptionalTensor& whole,
              const ffi::Integers& options) {
    QuantizeCall call = check_quantize({x, row_scale, layout, s, q, zeros, sums, whole}, QuantizeOptions(options));
    run_quantize(call);
    return true;
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(quantize, deep_gemm::quantize);
