// What deep_gemm/gemm.py, bf16.py, grouped.py, k_grouped.py and batched.py call: one export for each grouping, whose
// operands' dtypes and scales say of which format they are. Bindings only. Each returns false where the sum over K is
// empty, or all rows are padding for want of experts, so that D is C or zero: the caller writes it.
#include <iterator>
#include <string>
#include <vector>

#include "api/batch_sum.hpp"
#include "api/checks_batched.hpp"
#include "api/checks_grouped.hpp"
#include "api/checks_integer.hpp"
#include "api/checks_k_grouped.hpp"
#include "api/checks_packed.hpp"
#include "api/gemm.hpp"
#include "api/lender.hpp"
#include "api/recipe.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

bool gemm(const TensorView& a, const OptionalTensor& a_scales, const TensorView& b, const OptionalTensor& b_scales,
          const TensorView& d, const OptionalTensor& c, int64_t layout, const Recipe& recipe, const Recipe& recipe_a,
          const Recipe& recipe_b) {
    const Granularities given = granularities_of(recipe, recipe_a, recipe_b);
    const CallKey key(Grouping::dense, a, a_scales, b, b_scales, d, c, layout, given.number());
    return run_gemm(key, [&] { return check_dense({a, a_scales}, {b, b_scales}, d, c, given, layout); });
}

bool int8_gemm(const TensorView& a, const OptionalTensor& a_scales, const TensorView& b, const OptionalTensor& b_scales,
               const TensorView& d, const OptionalTensor& c, const OptionalTensor& bias, int64_t layout,
               std::optional<int64_t> a_scale, std::optional<int64_t> b_scale) {
    const int64_t number_a = a_scale.value_or(kNoNumber), number_b = b_scale.value_or(kNoNumber);
    const CallKey key(Grouping::dense, a, a_scales, number_a, b, b_scales, number_b, d, c, bias, layout);
    return run_gemm(key, [&] {
        return check_integers({a, a_scales, number_a}, {b, b_scales, number_b}, d, c, bias, layout);
    });
}

/// D in heads, of each of which the middle columns stay as they are.
bool gemm_in_heads(const TensorView& a, const OptionalTensor& a_scales, const TensorView& b,
                   const OptionalTensor& b_scales, const TensorView& d, const std::vector<int64_t>& head_splits,
                   int64_t layout, const Recipe& recipe) {
    const Granularities given = granularities_of(recipe, {}, {});
    const HeadSplits heads = check_head_splits(head_splits);
    const CallKey key(Grouping::dense, a, a_scales, b, b_scales, d, layout, given.number(), heads.left, heads.skipped,
                      heads.right);
    return run_gemm(key, [&] { return check_dense({a, a_scales}, {b, b_scales}, d, {}, given, layout, heads); });
}

/// Expressions of batched products in the order of their numbers, one a word.
std::string batched_forms() {
    std::string expressions;
    for (const BatchedForm& form : kBatchedForms) expressions += std::string(form.expression) + " ";
    return expressions + kBatchSum;
}

bool einsum(const TensorView& a, const OptionalTensor& a_scales, const TensorView& b, const OptionalTensor& b_scales,
            const TensorView& d, const OptionalTensor& c, int64_t form, const Recipe& recipe) {
    require(form >= 0 && form <= std::ssize(kBatchedForms), "no expression has the number ", form);
    if (form == std::ssize(kBatchedForms)) {
        begin_cold_call();
        return run_batch_sum(check_batch_sum({a, a_scales}, {b, b_scales}, d, c));
    }
    const Granularities given = granularities_of(recipe, {}, {});
    const CallKey key(Grouping::batched, a, a_scales, b, b_scales, d, c, form, given.number());
    return run_gemm(key, [&] { return check_batched(kBatchedForms[form], {a, a_scales}, {b, b_scales}, d, c, given); });
}

/// The element table's names in the order of their numbers, one a word.
std::string element_names() {
    std::string names;
    for (int32_t i = 0; i < kElementCount; ++i) names += std::string(facts(static_cast<Element>(i)).name) + " ";
    return names;
}

/// What deep_gemm/_packed.py says of PackedWeights, in this order.
PackedArgument packed_argument(const ffi::Integers& told, const OptionalTensor& second_scales, bool grouped) {
    require(told.size() == 5, "packed weights are told by five numbers");
    return {.element = static_cast<Element>(told[0]),
            .rows = told[1],
            .k = told[2],
            .group_k = told[3],
            .grouped = grouped,
            .second_scales = &second_scales,
            .number = told[4]};
}

bool packed_gemm(const TensorView& a, const OptionalTensor& a_scales, const TensorView& w,
                 const OptionalTensor& w_scales, const TensorView& d, const OptionalTensor& w_second_scales,
                 const OptionalTensor& c, const OptionalTensor& bias, const ffi::Integers& told, int64_t layout) {
    const PackedArgument packed = packed_argument(told, w_second_scales, false);
    const CallKey key(Grouping::dense, a, a_scales, w, w_scales, w_second_scales, d, c, bias, packed.element,
                      packed.rows, packed.k, packed.group_k, packed.number, layout);
    return run_gemm(key, [&] {
        GemmCall call = check_dense({a, a_scales}, {w, w_scales, &packed}, d, c, {}, layout);
        if (bias) check_bias(call, *bias, d);
        return call;
    });
}

bool packed_m_grouped_gemm_contiguous(const TensorView& a, const OptionalTensor& a_scales, const TensorView& w,
                                      const OptionalTensor& w_scales, const TensorView& d,
                                      const OptionalTensor& w_second_scales, const TensorView& grouped_layout,
                                      const ffi::Integers& told, int64_t layout, bool psum, bool zero_padding,
                                      int64_t expected_m) {
    const PackedArgument packed = packed_argument(told, w_second_scales, true);
    const CallKey key(Grouping::m_contiguous, a, a_scales, w, w_scales, w_second_scales, d, grouped_layout,
                      packed.element, packed.rows, packed.k, packed.group_k, packed.number, layout, psum, zero_padding,
                      expected_m);
    return run_gemm(key, [&] {
        return check_contiguous({a, a_scales}, {w, w_scales, &packed}, d, grouped_layout, {}, layout,
                                {.psum = psum, .zero_padding = zero_padding, .expected_m = expected_m});
    });
}

bool packed_m_grouped_gemm_masked(const TensorView& a, const OptionalTensor& a_scales, const TensorView& w,
                                  const OptionalTensor& w_scales, const TensorView& d,
                                  const OptionalTensor& w_second_scales, const TensorView& masked_m, int64_t expected_m,
                                  const ffi::Integers& told, int64_t layout) {
    const PackedArgument packed = packed_argument(told, w_second_scales, true);
    const CallKey key(Grouping::masked, a, a_scales, w, w_scales, w_second_scales, d, masked_m, packed.element,
                      packed.rows, packed.k, packed.group_k, packed.number, expected_m, layout);
    return run_gemm(key, [&] {
        return check_masked({a, a_scales}, {w, w_scales, &packed}, d, masked_m, expected_m, {}, layout);
    });
}

bool m_grouped_gemm_contiguous(const TensorView& a, const OptionalTensor& a_scales, const TensorView& b,
                               const OptionalTensor& b_scales, const TensorView& d, const TensorView& grouped_layout,
                               int64_t layout, bool psum, bool zero_padding, int64_t expected_m, const Recipe& recipe,
                               const Recipe& recipe_a, const Recipe& recipe_b) {
    const Granularities given = granularities_of(recipe, recipe_a, recipe_b);
    const CallKey key(Grouping::m_contiguous, a, a_scales, b, b_scales, d, grouped_layout, layout, psum, zero_padding,
                      expected_m, given.number());
    return run_gemm(key, [&] {
        return check_contiguous({a, a_scales}, {b, b_scales}, d, grouped_layout, given, layout,
                                {.psum = psum, .zero_padding = zero_padding, .expected_m = expected_m});
    });
}

bool m_grouped_gemm_masked(const TensorView& a, const OptionalTensor& a_scales, const TensorView& b,
                           const OptionalTensor& b_scales, const TensorView& d, const TensorView& masked_m,
                           int64_t expected_m, int64_t layout, const Recipe& recipe, const Recipe& recipe_a,
                           const Recipe& recipe_b) {
    const Granularities given = granularities_of(recipe, recipe_a, recipe_b);
    const CallKey key(Grouping::masked, a, a_scales, b, b_scales, d, masked_m, expected_m, layout, given.number());
    return run_gemm(key,
                    [&] { return check_masked({a, a_scales}, {b, b_scales}, d, masked_m, expected_m, given, layout); });
}

bool k_grouped_gemm(const TensorView& a, const OptionalTensor& a_scales, const TensorView& b,
                    const OptionalTensor& b_scales, const TensorView& d, const std::vector<int64_t>& ks,
                    const TensorView& grouped_layout, const OptionalTensor& c, int64_t layout, bool psum,
                    bool group_by_group, int64_t gran_k) {
    const auto check = group_by_group ? check_k_grouped_nt : check_k_grouped_tn;
    return run_k_grouped(check({a, a_scales}, {b, b_scales}, d, grouped_layout, c,
                               {.ks = ks, .layout = layout, .psum = psum, .gran_k = gran_k}));
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(gemm, deep_gemm::gemm);
DEEP_GEMM_EXPORT(gemm_in_heads, deep_gemm::gemm_in_heads);
DEEP_GEMM_EXPORT(einsum, deep_gemm::einsum);
DEEP_GEMM_EXPORT(batched_forms, deep_gemm::batched_forms);
DEEP_GEMM_EXPORT(int8_gemm, deep_gemm::int8_gemm);
DEEP_GEMM_EXPORT(element_names, deep_gemm::element_names);
DEEP_GEMM_EXPORT(packed_gemm, deep_gemm::packed_gemm);
DEEP_GEMM_EXPORT(packed_m_grouped_gemm_contiguous, deep_gemm::packed_m_grouped_gemm_contiguous);
DEEP_GEMM_EXPORT(packed_m_grouped_gemm_masked, deep_gemm::packed_m_grouped_gemm_masked);
DEEP_GEMM_EXPORT(m_grouped_gemm_contiguous, deep_gemm::m_grouped_gemm_contiguous);
DEEP_GEMM_EXPORT(m_grouped_gemm_masked, deep_gemm::m_grouped_gemm_masked);
DEEP_GEMM_EXPORT(k_grouped_gemm, deep_gemm::k_grouped_gemm);
