// What deep_gemm/gemm.py calls: dense products. Bindings only.
#include "api/checks.hpp"
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

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(fp8_gemm, deep_gemm::fp8_gemm);
DEEP_GEMM_EXPORT(bf16_gemm, deep_gemm::bf16_gemm);
