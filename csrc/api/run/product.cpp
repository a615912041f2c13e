#include "product.hpp"

#include <iterator>
#include <vector>

#include "../call/product_record.hpp"
#include "../check/checks_batched.hpp"
#include "../check/checks_channel_scales.hpp"
#include "../check/checks_grouped.hpp"
#include "../check/checks_k_grouped.hpp"
#include "../check/checks_packed.hpp"
#include "../check/recipe.hpp"
#include "batch_sum.hpp"
#include "gemm.hpp"

namespace deep_gemm {
namespace {

/// What a record says beside tensors' dtypes, shapes and strides of its operands.
struct Operands {
    const ProductRecord& record;
    bool packed = record.b_rows.has_value();
    bool integers = !packed && is(record.a_element, Element::s8);
    bool grouped = record.grouped_layout || record.masked_m;
    PackedArgument weights = {.element = static_cast<Element>(record.b_element.value_or(0)),
                              .rows = record.b_rows.value_or(0),
                              .k = record.b_k.value_or(0),
                              .group_k = record.b_group_k.value_or(0),
                              .grouped = grouped,
                              .sums = &record.b_sums,
                              .second_scales = &record.b_second_scales,
                              .zeros_k = record.b_zeros_k.value_or(0),
                              .zeros = record.b_zeros,
                              .near_scales = record.b_near_scales.value_or(0) != 0,
                              .tokens_k = record.a_group_k.value_or(0)};
    ChannelArgument channels_of_a = {.scale = record.a_scale.value_or(kNoNumber),
                                     .zero = record.a_zero.value_or(kNoZero),
                                     .zeros = &record.a_zeros,
                                     .int4 = is(record.a_element, Element::s4)};
    ChannelArgument channels_of_b = {.scale = record.b_scale.value_or(kNoNumber), .sums = &record.b_sums};

    static bool is(const ProductRecord::Number& element, Element wanted) {
        return element == static_cast<int64_t>(wanted);
    }

    /// Where nothing says what int8 with scales is, it is FP4, beside B of FP8.
    OperandArgument a() const {
        const bool fp4 = is(record.a_element, Element::e2m1r);
        const bool either_way = !record.a_element && record.a_scales && is_fp4_pairs(*record.a);
        return {.data = *record.a,
                .scales = record.a_scales,
                .whole = integers || packed ? &channels_of_a : nullptr,
                .name = "a",
                .scales_name = "a's scales",
                .fp4 = fp4 || (either_way && !packed),
                .either_way = either_way && !packed};
    }

    /// Functions of packed weights, and of experts' integers, call them w, but not a public pair of FP4.
    OperandArgument b() const {
        const bool is_w = packed ? !is_fp4_pairs(*record.b) : integers && grouped;
        return {.data = *record.b,
                .scales = record.b_scales,
                .packed = packed ? &weights : nullptr,
                .whole = integers ? &channels_of_b : nullptr,
                .name = is_w ? "w" : "b",
                .scales_name = is_w ? "w's scales" : "b's scales",
                .sums_name = is_w ? "w_sums" : "b_sums",
                .fp4 = !packed && is(record.b_element, Element::e2m1r)};
    }
};

/// Alpha, RowScale and bias, of a call whose operands and D are known.
void check_steps(GemmCall& call, const ProductRecord& record) {
    const OutputArgument d(*record.d);
    if (record.bias) check_bias(call, *record.bias, d);
    check_alpha(call, {record.alpha, record.alpha_bits.value_or(kNoNumber)}, d);
    if (record.row_scale)
        check_row_scale(call, *record.row_scale, d,
                        record.batched_form ? kBatchedForms[*record.batched_form].d
                                            : last_axes(call.problem.grouping == Grouping::masked));
}

std::vector<int64_t> vector_of(const ffi::Integers& integers) {
    std::vector<int64_t> values(static_cast<size_t>(integers.size()));
    for (int64_t i = 0; i < integers.size(); ++i) values[static_cast<size_t>(i)] = integers[i];
    return values;
}

/// How scales are shared: as recipes say, or for each row and so much of K.
Granularities sharing_of(const ProductRecord& r, const Operands& operands) {
    if (operands.packed || !r.a_group_k) return granularities_of(r.recipe);
    return {.a = {.rows = 1, .k = *r.a_group_k}, .b = {.rows = 1, .k = r.b_group_k.value_or(*r.a_group_k)}};
}

/// Refuses what the record's grouping has no place for, which the checks would not look at.
void require_taken(const ProductRecord& r) {
    require_type(r.a && r.b && r.d, "a product's record must have a, b and d");
    const auto refuse = [](bool given, const char* name, const char* where) {
        require(!given, name, " must be None where products are ", where);
    };
    const bool k_groups = r.ks.has_value(), experts = !k_groups && (r.grouped_layout || r.masked_m);
    require(!k_groups || !r.gate,
            "epilogue must have no gated activation where products are grouped along K: apply it to d afterwards");
    require(!k_groups || !r.row_scale, "epilogue must have no RowScale where products are grouped along K");
    if (k_groups || r.batched_form) {
        const char* const where = k_groups ? "grouped along K" : "batched";
        refuse(r.bias.has_value(), "bias", where), refuse(r.masked_m.has_value(), "masked_m", where);
        refuse(r.b_rows.has_value(), "packed weights", where);
    }
    if (experts) refuse(r.c.has_value(), "c", "of experts");
    if (experts || k_groups || r.batched_form) refuse(r.head_splits.has_value(), "head_splits", "grouped or batched");
    if (k_groups)
        require(r.grouped_layout.has_value(), "grouped_layout must be there where products are grouped along K");
    require_type(!r.d_scales || (!k_groups && !r.head_splits), "d must come without scales where ",
                 k_groups ? "products are grouped along K" : "it is written in heads");
}

GemmCall check_call(const ProductRecord& r, const Operands& operands) {
    const OperandArgument a = operands.a(), b = operands.b();
    const OutputArgument d(*r.d, r.d_scales, r.d_count);
    const Granularities given = sharing_of(r, operands);
    const int64_t layout = r.layout.value_or(0), expected_m = r.expected_m.value_or(0);
    if (r.batched_form) return check_batched(kBatchedForms[*r.batched_form], a, b, d, r.c, given, r.gate);
    if (r.masked_m) return check_masked(a, b, d, *r.masked_m, expected_m, given, layout, r.gate);
    if (r.grouped_layout) {
        const ContiguousOptions options{
            .psum = r.psum.value_or(0) != 0, .zero_padding = r.zero_padding.value_or(1) != 0, .expected_m = expected_m};
        return check_contiguous(a, b, d, *r.grouped_layout, given, layout, options, r.gate);
    }
    const HeadSplits heads = r.head_splits ? check_head_splits(vector_of(*r.head_splits)) : HeadSplits{};
    return check_dense(a, b, d, r.c, given, layout, heads, r.gate);
}

bool run_k_groups(const ProductRecord& r, const Operands& operands) {
    const auto check = r.group_by_group.value_or(0) != 0 ? check_k_grouped_nt : check_k_grouped_tn;
    const std::vector<int64_t> ks = vector_of(*r.ks);
    KGroupedCall k = check(operands.a(), operands.b(), *r.d, *r.grouped_layout, r.c,
                           {.ks = ks,
                            .layout = r.layout.value_or(0),
                            .psum = r.psum.value_or(0) != 0,
                            .gran_k = sharing_of(r, operands).a.k});
    check_steps(k.call, r);
    return run_k_grouped(std::move(k));
}

bool run_sum_over_batch(const ProductRecord& r, const Operands& operands) {
    require(!r.alpha && !r.alpha_bits, "the sum over a batch takes no alpha: multiply d, or a, by it");
    require(!r.d_scales, "d must come without scales where a batch is added up");
    require(
        !r.gate && !r.row_scale,
        "epilogue must have no gated activation and no RowScale where a batch is added up: apply it to d afterwards");
    return run_batch_sum(check_batch_sum(operands.a(), operands.b(), *r.d, r.c));
}

}  // namespace

bool run_product(const ffi::Given& given) {
    const CallKey key(given);
    const uint64_t generation = Generation::now();  // of before anything is read that it counts
    if (const CachedCall* known = CallCache::of_thread().find(key, generation)) {
        known->launch();
        return true;
    }
    begin_cold_call();
    const ProductRecord r = record_of<ProductRecord>(given);
    require_taken(r);
    const Operands operands{r};
    if (r.ks) return run_k_groups(r, operands);
    if (r.batched_form) {
        const int64_t form = *r.batched_form;
        require(form >= 0 && form <= std::ssize(kBatchedForms), "no expression has the number ", form);
        if (form == std::ssize(kBatchedForms)) return run_sum_over_batch(r, operands);
    }
    const bool dense = !r.batched_form && !operands.grouped && !r.head_splits;
    if (dense && !operands.packed && !operands.integers && !r.b_element && r.b_scales && is_fp4_pairs(*r.b))
        return false;
    GemmCall call = check_call(r, operands);
    check_steps(call, r);
    return run_checked_gemm(std::move(call), &key, generation);
}

}  // namespace deep_gemm
