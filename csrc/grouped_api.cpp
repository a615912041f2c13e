// What deep_gemm/grouped.py calls. Bindings only. Each product returns false where K is 0, or all rows are padding for
// want of experts, so that D is zero: the caller writes it.
#include "api/checks_grouped.hpp"
#include "api/gemm.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

bool m_grouped_fp8_gemm_contiguous(TensorView a, TensorView sfa, TensorView b, TensorView sfb, TensorView d,
                                   TensorView grouped_layout, Recipe recipe, Recipe recipe_a, Recipe recipe_b,
                                   int64_t compiled_dims, bool psum, bool zero_padding, int64_t expected_m,
                                   bool b_transposed) {
    const Granularities rows = granularities_of(recipe, recipe_a, recipe_b);
    const CallKey key(Grouping::m_contiguous, a, sfa, b, sfb, d, grouped_layout, rows.a, rows.b, compiled_dims, psum,
                      zero_padding, expected_m, b_transposed);
    return run_gemm(key, [&] {
        return check_contiguous({a, &sfa}, {b, &sfb}, d, grouped_layout, rows, compiled_dims,
                                {.psum = psum,
                                 .zero_padding = zero_padding,
                                 .expected_m = expected_m,
                                 .b_transposed = b_transposed});
    });
}

bool m_grouped_fp8_gemm_masked(TensorView a, TensorView sfa, TensorView b, TensorView sfb, TensorView d,
                               TensorView masked_m, int64_t expected_m, Recipe recipe, Recipe recipe_a, Recipe recipe_b,
                               int64_t compiled_dims) {
    const Granularities rows = granularities_of(recipe, recipe_a, recipe_b);
    const CallKey key(Grouping::masked, a, sfa, b, sfb, d, masked_m, expected_m, rows.a, rows.b, compiled_dims);
    return run_gemm(key,
                    [&] { return check_masked({a, &sfa}, {b, &sfb}, d, masked_m, expected_m, rows, compiled_dims); });
}

bool m_grouped_bf16_gemm_contiguous(TensorView a, TensorView b, TensorView d, TensorView grouped_layout,
                                    int64_t compiled_dims, bool psum, bool zero_padding, int64_t expected_m,
                                    bool b_transposed) {
    const CallKey key(Grouping::m_contiguous, a, b, d, grouped_layout, compiled_dims, psum, zero_padding, expected_m,
                      b_transposed);
    return run_gemm(key, [&] {
        return check_contiguous({a}, {b}, d, grouped_layout, {}, compiled_dims,
                                {.psum = psum,
                                 .zero_padding = zero_padding,
                                 .expected_m = expected_m,
                                 .b_transposed = b_transposed});
    });
}

bool m_grouped_bf16_gemm_masked(TensorView a, TensorView b, TensorView d, TensorView masked_m, int64_t expected_m,
                                int64_t compiled_dims) {
    const CallKey key(Grouping::masked, a, b, d, masked_m, expected_m, compiled_dims);
    return run_gemm(key, [&] { return check_masked({a}, {b}, d, masked_m, expected_m, {}, compiled_dims); });
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(m_grouped_bf16_gemm_contiguous, deep_gemm::m_grouped_bf16_gemm_contiguous);
DEEP_GEMM_EXPORT(m_grouped_bf16_gemm_masked, deep_gemm::m_grouped_bf16_gemm_masked);
DEEP_GEMM_EXPORT(m_grouped_fp8_gemm_contiguous, deep_gemm::m_grouped_fp8_gemm_contiguous);
DEEP_GEMM_EXPORT(m_grouped_fp8_gemm_masked, deep_gemm::m_grouped_fp8_gemm_masked);
