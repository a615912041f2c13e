// What deep_gemm/gemm.py calls: dense products. Bindings only.
#include <tvm/ffi/container/array.h>

#include <vector>

#include "api/checks.hpp"
#include "api/gemm.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::Array;
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

bool fp8_gemm_in_heads(TensorView a, TensorView sfa, TensorView b, TensorView sfb, TensorView d,
                       Array<int64_t> head_splits, Recipe recipe, int64_t compiled_dims) {
    const Granularities rows = granularities_of(recipe, {}, {});
    const std::vector<int64_t> splits(head_splits.begin(), head_splits.end());
    const HeadSplits heads = check_head_splits(splits);
    const CallKey key(Grouping::dense, a, sfa, b, sfb, d, rows.a, rows.b, compiled_dims, heads.left, heads.skipped,
                      heads.right);
    return run_gemm(key, [&] { return check_dense({a, &sfa}, {b, &sfb}, d, {}, rows, compiled_dims, {}, heads); });
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
DEEP_GEMM_EXPORT(fp8_gemm_in_heads, deep_gemm::fp8_gemm_in_heads);
DEEP_GEMM_EXPORT(bf16_gemm, deep_gemm::bf16_gemm);
