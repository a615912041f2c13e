#include "checks_integer.hpp"

#include "../../config/archs.hpp"
#include "../call/dtypes.hpp"
#include "checks_channel_scales.hpp"
#include "checks_lines.hpp"

namespace deep_gemm {

void require_sums_or_scales(const Problem& problem, const TensorView& d) {
    if (sum_of(problem.a.element) != Element::s32) return;
    const bool exact = problem.output == Element::s32;
    require_type(exact != problem.a.scaling.any(), "d must be ",
                 exact ? "a floating dtype where operands have scales"
                       : "int32 where operands have no scales (give 1.0)",
                 ", got ", describe(d.dtype()));
}

namespace {

/// B's, which are for groups of K.
Scales check_recipe_scales(GemmCall& call, const OperandArgument& b, const Granularities& given) {
    require(given.a.rows == 1 && given.b.k == kScaleGroupK,
            "recipe must be (1, 1, 128) or (1, 128, 128), or None, got (", given.a.rows, ", ", given.b.rows, ", ",
            given.b.k, ")");
    require_type(element_of(b.scales->dtype()) == Element::fp32, b.scales_name, " must be float32, got ",
                 describe(b.scales->dtype()));
    Scaling& scaling = call.problem.b.scaling;
    scaling = {Element::fp32, static_cast<int32_t>(given.b.rows), kScaleGroupK};
    return check_scales(*b.scales,
                        {b.name, b.scales_name, call.b.groups, call.b.rows, call.b.cols, scaling, given.b.rows}, call,
                        last_axes(call.b.groups > 1 || b.scales->ndim() == 3));
}

void check_given_scales(GemmCall& call, const OperandArgument& a, const OperandArgument& b,
                        const Granularities& given) {
    Problem& p = call.problem;
    const bool whole = given.b.rows == kRowsByDefault;
    require(whole || p.a.scaling.any(), "recipe must be None where operands have no scales");
    if (!p.a.scaling.any()) return;
    check_token_scales(call, a);
    check_zero_points(call, a);
    if (whole) {
        call.scales_b = check_channel_scales(b,
                                             {b.scales_name, "N", call.b.groups, p.n, is_m_grouped(p.grouping),
                                              ": scales of groups of K, or of blocks, want a recipe"},
                                             call);
        return;
    }
    require(b.scales.has_value(), b.scales_name, " must be a tensor where a recipe is given, got a number");
    call.scales_b = check_recipe_scales(call, b, given);
}

/// One for each row, exact, or FP32 where groups along K have scales. Calls without zero points may bring them too.
void check_row_sums(GemmCall& call, const OperandArgument& b) {
    if (b.sums() == nullptr) return;
    const TensorView& sums = *b.sums();
    const char* const name = b.sums_name;
    const Element element = row_sums_element(call.problem.b.scaling);
    require_type(element_of(sums.dtype()) == element, name, " must be ", dtype_name(element), " where ", b.scales_name,
                 " are for ", element == Element::fp32 ? "groups" : "all", " of K, got ", describe(sums.dtype()));
    require_device(sums, name, call.device, "a");
    const bool grouped = is_m_grouped(call.problem.grouping);
    const int n = grouped ? 1 : 0;  // its dimension
    require(sums.ndim() == n + 1 && sums.size(n) == call.b.rows && (!grouped || sums.size(0) == call.b.groups), name,
            " must be ", Later{[&] { return grouped ? concat("[G, N] = [", call.b.groups, ", ") : "[N] = ["; }},
            call.b.rows, "], a sum for each row of ", b.name, ", got shape ", describe_shape(sums));
    require(call.b.rows == 1 || sums.stride(n) == 1, name, " must have N contiguous, but their strides are ",
            describe_strides(sums));
    call.sums_b = {.data = sums.data(), .group_stride = grouped ? sums.stride(0) : 0, .bytes = extent_bytes(sums)};
}

}  // namespace

void check_integer_scales(GemmCall& call, const OperandArgument& a, const OperandArgument& b,
                          const Granularities& given) {
    check_given_scales(call, a, b, given);
    check_row_sums(call, b);
}

RowsToSum check_rows_to_sum(const TensorView& data, const OptionalTensor& scales, const Granularities& given) {
    const OperandArgument b{.data = data, .scales = scales, .scales_name = "scales"};
    require_type(element_of(data.dtype()) == Element::s8, "b must be int8, got ", describe(data.dtype()));
    GemmCall call{.device = device_id_of(data, "b")};
    call.problem.arch = arch_of(Device::get(call.device).facts());
    call.problem.b.element = Element::s8;
    call.b = matrix_of(data, "b", data.ndim() == 3, "[N, K] or [G, N, K]");
    check_layout(call.b, call.problem.b, MnMajor::transposed, "b", "N");
    const bool scaled = given.b.rows != kRowsByDefault;
    require(scales.has_value() == scaled, "scales must be ", scaled ? "there" : "None", " where recipe is ",
            scaled ? "given" : "None: sums of integers have none");
    RowsToSum found{.device = call.device, .b = call.b};
    if (scaled) found.scales = check_recipe_scales(call, b, given);
    return found;
}

}  // namespace deep_gemm
