// What deep_gemm/k_grouped.py calls. Bindings only. Each returns false where no group has any K: the caller makes D C
// or zero.
#include <tvm/ffi/container/array.h>

#include "api/checks_k_grouped.hpp"
#include "api/gemm.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::Array;
using tvm::ffi::Optional;

bool k_grouped_fp8_gemm(TensorView a, TensorView sfa, TensorView b, TensorView sfb, TensorView d, Array<int64_t> ks,
                        TensorView grouped_layout, Optional<TensorView> c, int64_t compiled_dims, bool psum,
                        bool group_by_group) {
    const std::vector<int64_t> sizes(ks.begin(), ks.end());
    const std::optional<TensorView> added = ffi::to_optional(c);
    const auto check = group_by_group ? check_k_grouped_nt : check_k_grouped_tn;
    return run_k_grouped(check({a, &sfa}, {b, &sfb}, d, sizes, grouped_layout, added, compiled_dims, psum));
}

bool k_grouped_bf16_gemm(TensorView a, TensorView b, TensorView d, Array<int64_t> ks, TensorView grouped_layout,
                         Optional<TensorView> c, int64_t compiled_dims, bool psum) {
    const std::vector<int64_t> sizes(ks.begin(), ks.end());
    const std::optional<TensorView> added = ffi::to_optional(c);
    return run_k_grouped(check_k_grouped_tn({a}, {b}, d, sizes, grouped_layout, added, compiled_dims, psum));
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(k_grouped_bf16_gemm, deep_gemm::k_grouped_bf16_gemm);
DEEP_GEMM_EXPORT(k_grouped_fp8_gemm, deep_gemm::k_grouped_fp8_gemm);
