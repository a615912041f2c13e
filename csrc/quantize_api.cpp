// Quantise kernels, as deep_gemm/_quantize.py calls them. Results are allocated there; here they are checked and
// filled.
#include "quantize/call.hpp"

namespace deep_gemm {
namespace {

bool quantize(const ffi::Given& given) {
    QuantizeCall call = check_quantize(read<QuantizeRecord>(given));
    run_quantize(call);
    return true;
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(quantize, deep_gemm::quantize);
DEEP_GEMM_EXPORT(quantize_fields, deep_gemm::names_of<deep_gemm::QuantizeRecord>);
