// What deep_gemm/gemm.py calls: dense products. Bindings only.
#include "api/checks.hpp"
#include "api/checks_integer.hpp"
#include "api/gemm.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::Optional;

bool fp8_gemm(TensorView a, TensorView sfa, TensorView b, TensorView sfb, TensorView d, Optional<TensorView> c,
              Recipe recipe, Recipe recipe_a, Recipe recipe_b, int64_t layout) {
    const Granularities rows = granularities_of(recipe, recipe_a, recipe_b);
    const std::optional<TensorView> added = ffi::to_optional(c);
    const CallKey key(Grouping::dense, a, sfa, b, sfb, d, added, rows.a, rows.b, layout);
    return run_gemm(key, [&] {
        return check_dense({a, &sfa}, {b, &sfb}, d, added, rows, layout & kCompileAll, operand_layout(layout));
    });
}

bool bf16_gemm(TensorView a, TensorView b, TensorView d, Optional<TensorView> c, int64_t layout) {
    const std::optional<TensorView> added = ffi::to_optional(c);
    const CallKey key(Grouping::dense, a, b, d, added, layout);
    return run_gemm(key,
                    [&] { return check_dense({a}, {b}, d, added, {}, layout & kCompileAll, operand_layout(layout)); });
}

bool int8_gemm(TensorView a, Optional<TensorView> sfa, Optional<int64_t> scale_a, TensorView b,
               Optional<TensorView> sfb, Optional<int64_t> scale_b, TensorView d, Optional<TensorView> c,
               Optional<TensorView> bias, int64_t compiled_dims) {
    const std::optional<TensorView> scales_a = ffi::to_optional(sfa), scales_b = ffi::to_optional(sfb),
                                    added = ffi::to_optional(c), per_n = ffi::to_optional(bias);
    const int64_t number_a = scale_a.value_or(kNoNumber), number_b = scale_b.value_or(kNoNumber);
    const CallKey key(Grouping::dense, a, scales_a, number_a, b, scales_b, number_b, d, added, per_n, compiled_dims);
    return run_gemm(key, [&] {
        return check_integers({a, scales_a, number_a}, {b, scales_b, number_b}, d, added, per_n, compiled_dims);
    });
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(fp8_gemm, deep_gemm::fp8_gemm);
DEEP_GEMM_EXPORT(bf16_gemm, deep_gemm::bf16_gemm);
DEEP_GEMM_EXPORT(int8_gemm, deep_gemm::int8_gemm);
