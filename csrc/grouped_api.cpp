// What deep_gemm/grouped.py calls. Bindings only. Each product returns false where K is 0, so that D is zero: the
// caller writes it.
#include <tvm/ffi/string.h>

#include <string_view>

#include "api/checks_grouped.hpp"
#include "api/gemm.hpp"
#include "config/explain.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::String;

bool m_grouped_fp8_gemm_contiguous(TensorView a, TensorView sfa, TensorView b, TensorView sfb, TensorView d,
                                   TensorView grouped_layout, Recipe recipe, Recipe recipe_a, Recipe recipe_b,
                                   int64_t compiled_dims, bool psum, bool zero_padding, int64_t expected_m,
                                   bool b_transposed) {
    const Granularities rows = granularities_of(recipe, recipe_a, recipe_b);
    const CallKey key(Grouping::m_contiguous, a, sfa, b, sfb, d, grouped_layout, rows.a, rows.b, compiled_dims, psum,
                      zero_padding, expected_m, b_transposed);
    return run_gemm(key, [&] {
        return check_contiguous(a, sfa, b, sfb, d, grouped_layout, rows, compiled_dims,
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
    return run_gemm(key, [&] { return check_masked(a, sfa, b, sfb, d, masked_m, expected_m, rows, compiled_dims); });
}

/// Every candidate for a grouped FP8 problem, one a line. `kind` is "m_contiguous", "m_psum" or "masked"; m is max_m of
/// a masked one.
std::string explain_grouped(String kind, int64_t groups, int64_t m, int64_t expected_m, int64_t n, int64_t k,
                            int64_t alignment, int64_t num_sms) {
    Problem p{.grouping = m_grouping(std::string_view(kind.data(), kind.size())),
              .m = to_int32(m, "M"),
              .n = to_int32(n, "N"),
              .k = to_int32(k, "K"),
              .num_groups = to_int32(groups, "the number of experts"),
              .m_alignment = to_int32(alignment, "the alignment"),
              .num_sms = static_cast<int32_t>(num_sms)};
    p.expected_m = coarse_hint(p, expected_m);
    pack_rows(p);
    return explain(p);
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(explain_grouped, deep_gemm::explain_grouped);
DEEP_GEMM_EXPORT(m_grouped_fp8_gemm_contiguous, deep_gemm::m_grouped_fp8_gemm_contiguous);
DEEP_GEMM_EXPORT(m_grouped_fp8_gemm_masked, deep_gemm::m_grouped_fp8_gemm_masked);
