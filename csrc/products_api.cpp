// What deep_gemm/fp8.py, bf16.py, grouped.py, k_grouped.py and batched.py call: one export for each grouping, whose
// operands' dtypes and scales say of which format they are. Bindings only. Each returns false where the sum over K is
// empty, or all rows are padding for want of experts, so that D is C or zero: the caller writes it.
#include <iterator>
#include <string>
#include <vector>

#include "api/call/lender.hpp"
#include "api/check/checks_batched.hpp"
#include "api/check/checks_channel_scales.hpp"
#include "api/check/checks_grouped.hpp"
#include "api/check/checks_integer.hpp"
#include "api/check/checks_k_grouped.hpp"
#include "api/check/checks_packed.hpp"
#include "api/check/recipe.hpp"
#include "api/prepare/row_sums.hpp"
#include "api/run/batch_sum.hpp"
#include "api/run/gemm.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

/// A of FP8, or of FP4 beside B of FP8: int8 with scales. (Integers have calls of their own.)
OperandArgument operand_a(const TensorView& a, const OptionalTensor& scales) {
    OperandArgument operand{.data = a, .scales = scales, .name = "a", .scales_name = "a's scales"};
    operand.fp4 = operand.either_way = scales && is_fp4_pairs(a);
    return operand;
}

/// The bits of alpha, which multiplies complete sums. None where there is none.
using AlphaBits = std::optional<int64_t>;

GemmCall with_steps(GemmCall call, const AlphaBits& alpha, const OptionalTensor& row_scale, const TensorView& d) {
    if (alpha) check_alpha(call, {{}, *alpha}, d);
    if (row_scale) check_row_scale(call, *row_scale, d);
    return call;
}

bool gemm(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales, const TensorView& b,
          const OptionalTensor& b_scales, const OutputArgument& d, const OptionalTensor& c, int64_t layout,
          const Recipe& recipe, const Recipe& recipe_a, const Recipe& recipe_b, const AlphaBits& alpha,
          const OptionalTensor& row_scale, const GateRecord& gate) {
    if (b_scales && is_fp4_pairs(b)) return false;  // of FP4, which packed_gemm takes
    const Granularities given = granularities_of(recipe, recipe_a, recipe_b);
    return run_gemm(CallKey(arguments), [&] {
        return with_steps(check_dense(operand_a(a, a_scales), {b, b_scales}, d, c, given, layout, {}, gate), alpha,
                          row_scale, d);
    });
}

/// What deep_gemm/int8.py says of integer operands beside their tensors, in this order.
struct IntegerNumbers {
    ChannelArgument a, b;
    IntegerNumbers(const ffi::Integers& record, const OptionalTensor& zeros, const OptionalTensor& sums) {
        require(record.size() == 3, "integer operands are given as three numbers");
        a = {.scale = record[0], .zero = record[2], .zeros = &zeros}, b = {.scale = record[1], .sums = &sums};
    }
};

/// Weights of functions that call them w; and the public pair of FP4 weights, which theirs call b.
OperandArgument weights_argument(const TensorView& w, const OptionalTensor& scales, const PackedArgument* packed,
                                 const ChannelArgument* whole = nullptr) {
    if (packed != nullptr && is_fp4_pairs(w)) return {w, scales, packed, whole};
    return {w, scales, packed, whole, "w", "w's scales", "w_sums"};
}

GemmCall with_bias(GemmCall call, const OptionalTensor& bias, const TensorView& d) {
    if (bias) check_bias(call, *bias, d);
    return call;
}

bool int8_gemm(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales, const TensorView& b,
               const OptionalTensor& b_scales, const OutputArgument& d, const OptionalTensor& c,
               const OptionalTensor& bias, const OptionalTensor& zeros, const OptionalTensor& sums,
               const ffi::Integers& record, const Recipe& recipe, int64_t layout, const AlphaBits& alpha,
               const OptionalTensor& row_scale, const GateRecord& gate) {
    const IntegerNumbers numbers(record, zeros, sums);
    const Granularities given = granularities_of(recipe, {}, {});
    return run_gemm(CallKey(arguments), [&] {
        const OperandArgument of_a{a, a_scales, nullptr, &numbers.a}, of_b{b, b_scales, nullptr, &numbers.b};
        GemmCall call = check_dense(of_a, of_b, d, c, given, layout, {}, gate);
        return with_steps(with_bias(std::move(call), bias, d), alpha, row_scale, d);
    });
}

bool int8_m_grouped_gemm_contiguous(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales,
                                    const TensorView& w, const OptionalTensor& w_scales, const OutputArgument& d,
                                    const TensorView& grouped_layout, const OptionalTensor& bias,
                                    const OptionalTensor& zeros, const OptionalTensor& sums,
                                    const ffi::Integers& record, const Recipe& recipe, int64_t layout, bool psum,
                                    bool zero_padding, int64_t expected_m, const AlphaBits& alpha,
                                    const OptionalTensor& row_scale, const GateRecord& gate) {
    const IntegerNumbers numbers(record, zeros, sums);
    const Granularities given = granularities_of(recipe, {}, {});
    return run_gemm(CallKey(arguments), [&] {
        const OperandArgument tokens{a, a_scales, nullptr, &numbers.a};
        const OperandArgument weights = weights_argument(w, w_scales, nullptr, &numbers.b);
        const ContiguousOptions options{.psum = psum, .zero_padding = zero_padding, .expected_m = expected_m};
        GemmCall call = check_contiguous(tokens, weights, d, grouped_layout, given, layout, options, gate);
        return with_steps(with_bias(std::move(call), bias, d), alpha, row_scale, d);
    });
}

bool int8_m_grouped_gemm_masked(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales,
                                const TensorView& w, const OptionalTensor& w_scales, const OutputArgument& d,
                                const TensorView& masked_m, const OptionalTensor& bias, const OptionalTensor& zeros,
                                const OptionalTensor& sums, int64_t expected_m, const ffi::Integers& record,
                                const Recipe& recipe, int64_t layout, const AlphaBits& alpha,
                                const OptionalTensor& row_scale, const GateRecord& gate) {
    const IntegerNumbers numbers(record, zeros, sums);
    const Granularities given = granularities_of(recipe, {}, {});
    return run_gemm(CallKey(arguments), [&] {
        const OperandArgument tokens{a, a_scales, nullptr, &numbers.a};
        const OperandArgument weights = weights_argument(w, w_scales, nullptr, &numbers.b);
        GemmCall call = check_masked(tokens, weights, d, masked_m, expected_m, given, layout, gate);
        return with_steps(with_bias(std::move(call), bias, d), alpha, row_scale, d);
    });
}

/// Sums of the rows of [N, K] or [G, N, K], which callers keep: int32, or float32 times scales of groups of K.
void int8_row_sums(const TensorView& b, const OptionalTensor& scales, const TensorView& sums, const Recipe& recipe) {
    const RowsToSum rows = check_rows_to_sum(b, scales, granularities_of(recipe, {}, {}));
    make_row_sums(Device::get(rows.device), rows.b, rows.scales ? &*rows.scales : nullptr, sums.data(),
                  current_stream(rows.device));
}

/// D in heads, of each of which the middle columns stay as they are.
bool gemm_in_heads(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales,
                   const TensorView& b, const OptionalTensor& b_scales, const TensorView& d,
                   const std::vector<int64_t>& head_splits, int64_t layout, const Recipe& recipe) {
    const Granularities given = granularities_of(recipe, {}, {});
    const HeadSplits heads = check_head_splits(head_splits);
    return run_gemm(CallKey(arguments),
                    [&] { return check_dense({a, a_scales}, {b, b_scales}, d, {}, given, layout, heads); });
}

/// Expressions of batched products in the order of their numbers, one a word.
std::string batched_forms() {
    std::string expressions;
    for (const BatchedForm& form : kBatchedForms) expressions += std::string(form.expression) + " ";
    return expressions + kBatchSum;
}

bool einsum(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales, const TensorView& b,
            const OptionalTensor& b_scales, const OutputArgument& d, const OptionalTensor& c, int64_t form,
            const Recipe& recipe, const AlphaBits& alpha) {
    require(form >= 0 && form <= std::ssize(kBatchedForms), "no expression has the number ", form);
    if (form == std::ssize(kBatchedForms)) {
        require(!alpha, "the sum over a batch takes no alpha: multiply d, or a, by it");
        require(!d.scales, "d must come without scales where a batch is added up");
        begin_cold_call();
        return run_batch_sum(check_batch_sum({a, a_scales}, {b, b_scales}, d, c));
    }
    const Granularities given = granularities_of(recipe, {}, {});
    return run_gemm(CallKey(arguments), [&] {
        return with_steps(check_batched(kBatchedForms[form], {a, a_scales}, {b, b_scales}, d, c, given), alpha, {}, d);
    });
}

/// The element table's names in the order of their numbers, one a word.
std::string element_names() {
    std::string names;
    for (int32_t i = 0; i < kElementCount; ++i) names += std::string(facts(static_cast<Element>(i)).name) + " ";
    return names;
}

/// What deep_gemm/_packed.py says of PackedWeights, in this order.
PackedArgument packed_argument(const ffi::Integers& record, const OptionalTensor& zeros, const OptionalTensor& sums,
                               const OptionalTensor& second_scales, bool grouped) {
    require(record.size() == 9, "packed weights are given as nine numbers");
    return {.element = static_cast<Element>(record[0]),
            .rows = record[1],
            .k = record[2],
            .group_k = record[3],
            .grouped = grouped,
            .sums = &sums,
            .second_scales = &second_scales,
            .zeros_k = record[7],
            .zeros = zeros,
            .tokens_k = record[8]};
}

ChannelArgument tokens_argument(const ffi::Integers& record, const OptionalTensor& zeros) {
    return {.scale = record[4], .zero = record[5], .zeros = &zeros, .int4 = record[6] != 0};
}

bool packed_gemm(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales, const TensorView& w,
                 const OptionalTensor& w_scales, const OutputArgument& d, const OptionalTensor& c,
                 const OptionalTensor& bias, const OptionalTensor& zeros, const OptionalTensor& sums,
                 const OptionalTensor& w_zeros, const OptionalTensor& w_second, const ffi::Integers& record,
                 int64_t layout, const AlphaBits& alpha, const OptionalTensor& row_scale, const GateRecord& gate) {
    const PackedArgument packed = packed_argument(record, w_zeros, sums, w_second, false);
    const ChannelArgument whole = tokens_argument(record, zeros);
    return run_gemm(CallKey(arguments), [&] {
        const OperandArgument tokens{a, a_scales, nullptr, &whole}, weights = weights_argument(w, w_scales, &packed);
        GemmCall call = check_dense(tokens, weights, d, c, {}, layout, {}, gate);
        return with_steps(with_bias(std::move(call), bias, d), alpha, row_scale, d);
    });
}

bool packed_m_grouped_gemm_contiguous(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales,
                                      const TensorView& w, const OptionalTensor& w_scales, const OutputArgument& d,
                                      const TensorView& grouped_layout, const OptionalTensor& bias,
                                      const OptionalTensor& zeros, const OptionalTensor& sums,
                                      const OptionalTensor& w_zeros, const OptionalTensor& w_second,
                                      const ffi::Integers& record, int64_t layout, bool psum, bool zero_padding,
                                      int64_t expected_m, const AlphaBits& alpha, const OptionalTensor& row_scale,
                                      const GateRecord& gate) {
    const PackedArgument packed = packed_argument(record, w_zeros, sums, w_second, true);
    const ChannelArgument whole = tokens_argument(record, zeros);
    return run_gemm(CallKey(arguments), [&] {
        const ContiguousOptions options{.psum = psum, .zero_padding = zero_padding, .expected_m = expected_m};
        const OperandArgument tokens{a, a_scales, nullptr, &whole}, weights = weights_argument(w, w_scales, &packed);
        GemmCall call = check_contiguous(tokens, weights, d, grouped_layout, {}, layout, options, gate);
        return with_steps(with_bias(std::move(call), bias, d), alpha, row_scale, d);
    });
}

bool packed_m_grouped_gemm_masked(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales,
                                  const TensorView& w, const OptionalTensor& w_scales, const OutputArgument& d,
                                  const TensorView& masked_m, const OptionalTensor& bias, const OptionalTensor& zeros,
                                  const OptionalTensor& sums, const OptionalTensor& w_zeros,
                                  const OptionalTensor& w_second, int64_t expected_m, const ffi::Integers& record,
                                  int64_t layout, const AlphaBits& alpha, const OptionalTensor& row_scale,
                                  const GateRecord& gate) {
    const PackedArgument packed = packed_argument(record, w_zeros, sums, w_second, true);
    const ChannelArgument whole = tokens_argument(record, zeros);
    return run_gemm(CallKey(arguments), [&] {
        const OperandArgument tokens{a, a_scales, nullptr, &whole}, weights = weights_argument(w, w_scales, &packed);
        GemmCall call = check_masked(tokens, weights, d, masked_m, expected_m, {}, layout, gate);
        return with_steps(with_bias(std::move(call), bias, d), alpha, row_scale, d);
    });
}

bool m_grouped_gemm_contiguous(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales,
                               const TensorView& b, const OptionalTensor& b_scales, const OutputArgument& d,
                               const TensorView& grouped_layout, int64_t layout, bool psum, bool zero_padding,
                               int64_t expected_m, const Recipe& recipe, const Recipe& recipe_a, const Recipe& recipe_b,
                               const AlphaBits& alpha, const OptionalTensor& row_scale, const GateRecord& gate) {
    const Granularities given = granularities_of(recipe, recipe_a, recipe_b);
    return run_gemm(CallKey(arguments), [&] {
        const ContiguousOptions options{.psum = psum, .zero_padding = zero_padding, .expected_m = expected_m};
        return with_steps(check_contiguous(operand_a(a, a_scales), {b, b_scales}, d, grouped_layout, given, layout,
                                           options, gate),
                          alpha, row_scale, d);
    });
}

bool m_grouped_gemm_masked(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales,
                           const TensorView& b, const OptionalTensor& b_scales, const OutputArgument& d,
                           const TensorView& masked_m, int64_t expected_m, int64_t layout, const Recipe& recipe,
                           const Recipe& recipe_a, const Recipe& recipe_b, const AlphaBits& alpha,
                           const OptionalTensor& row_scale, const GateRecord& gate) {
    const Granularities given = granularities_of(recipe, recipe_a, recipe_b);
    return run_gemm(CallKey(arguments), [&] {
        return with_steps(check_masked(operand_a(a, a_scales), {b, b_scales}, d, masked_m, expected_m, given, layout,
                                       gate),
                          alpha, row_scale, d);
    });
}

bool k_grouped_gemm(const TensorView& a, const OptionalTensor& a_scales, const TensorView& b,
                    const OptionalTensor& b_scales, const TensorView& d, const std::vector<int64_t>& ks,
                    const TensorView& grouped_layout, const OptionalTensor& c, int64_t layout, bool psum,
                    bool group_by_group, int64_t gran_k, const AlphaBits& alpha) {
    const auto check = group_by_group ? check_k_grouped_nt : check_k_grouped_tn;
    KGroupedCall k = check({a, a_scales}, {b, b_scales}, d, grouped_layout, c,
                           {.ks = ks, .layout = layout, .psum = psum, .gran_k = gran_k});
    if (alpha) check_alpha(k.call, {{}, *alpha}, d);
    return run_k_grouped(std::move(k));
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(gemm, deep_gemm::gemm);
DEEP_GEMM_EXPORT(gemm_in_heads, deep_gemm::gemm_in_heads);
DEEP_GEMM_EXPORT(einsum, deep_gemm::einsum);
DEEP_GEMM_EXPORT(batched_forms, deep_gemm::batched_forms);
DEEP_GEMM_EXPORT(int8_gemm, deep_gemm::int8_gemm);
DEEP_GEMM_EXPORT(int8_m_grouped_gemm_contiguous, deep_gemm::int8_m_grouped_gemm_contiguous);
DEEP_GEMM_EXPORT(int8_m_grouped_gemm_masked, deep_gemm::int8_m_grouped_gemm_masked);
DEEP_GEMM_EXPORT(int8_row_sums, deep_gemm::int8_row_sums);
DEEP_GEMM_EXPORT(element_names, deep_gemm::element_names);
DEEP_GEMM_EXPORT(packed_gemm, deep_gemm::packed_gemm);
DEEP_GEMM_EXPORT(packed_m_grouped_gemm_contiguous, deep_gemm::packed_m_grouped_gemm_contiguous);
DEEP_GEMM_EXPORT(packed_m_grouped_gemm_masked, deep_gemm::packed_m_grouped_gemm_masked);
DEEP_GEMM_EXPORT(m_grouped_gemm_contiguous, deep_gemm::m_grouped_gemm_contiguous);
DEEP_GEMM_EXPORT(m_grouped_gemm_masked, deep_gemm::m_grouped_gemm_masked);
DEEP_GEMM_EXPORT(k_grouped_gemm, deep_gemm::k_grouped_gemm);
