#include "checks_scales.hpp"

#include <algorithm>
#include <ostream>

#include "../call/dtypes.hpp"
#include "checks.hpp"

namespace deep_gemm {
namespace {

/// How scales are shared, for errors: "one float32 per row and 128 of K".
struct ScalingText {
    Element element;  // as they lie
    int64_t rows, k;
    Element in_words = Element::ue8m0;
};

std::ostream& operator<<(std::ostream& out, const ScalingText& text) {
    out << "one " << dtype_name(text.element);
    if (text.element == Element::s32)
        out << " of " << kScalesPerWord << (text.in_words == Element::e4m3 ? " scales" : " exponents");
    out << " per ";
    if (text.rows != 1) out << text.rows << " rows";
    return out << (text.rows == 1 ? "row" : "") << " and " << text.k << " of K";
}

ScalingText text_of(const Scaling& scaling) { return {scaling.type, scaling.rows, scaling.k}; }

/// The scales that an operand wants, for errors.
struct ScalesText {
    Axes axes;
    int64_t groups, rows, k_scales;
    ScalingText scaling;
    const char* operand;
};

std::ostream& operator<<(std::ostream& out, const ScalesText& text) {
    for (int i = 0; i < text.axes.count(); ++i)
        out << (i == 0 ? "[" : ", ")
            << (i == text.axes.group ? text.groups
                : i == text.axes.row ? text.rows
                                     : text.k_scales);
    return out << "] (" << text.scaling << " of " << text.operand << ")";
}

/// An operand's, of a pair that lists these. Those in instructions, and blocks of a smaller K, are
/// repeated for each row on the way to the kernel.
Scaling scaling_of(std::span<const Scaling> listed, const Granularity& given, const char* operand) {
    const auto same_k = std::ranges::find(listed, static_cast<int32_t>(given.k), &Scaling::k);
    const Scaling& like = same_k == listed.end() ? listed[0] : *same_k;
    const Scaling each_row{like.type, 1, static_cast<int32_t>(given.k)};
    const Scaling as_given{like.type, static_cast<int32_t>(given.rows), static_cast<int32_t>(given.k)};
    const Scaling scaling =
        like.in_instruction() || (given.k < kScaleGroupK && lists(listed, each_row)) ? each_row : as_given;
    require(lists(listed, scaling), operand, "'s scales must be ", text_of(listed[0]), ", not ", text_of(scaling),
            ": see recipe");
    return scaling;
}

/// What scales may lie as.
void check_scale_dtype(Element element, DLDataType type, const Scaling& scaling, const char* name, const Problem& p) {
    if (scaling.type == Element::e4m3) {
        require_type(element == Element::e4m3 || element == Element::s32, name,
                     " must be float8_e4m3fn, or int32 of four of them each, got ", describe(type));
        return;
    }
    if (scaling.in_instruction()) {
        require_type(element == Element::s32 || element == Element::ue8m0 || element == Element::fp32, name,
                     " must be int32 (packed UE8M0 exponents), float8_e8m0fnu or float32, got ", describe(type));
        return;
    }
    const bool takes_words = facts(p.a.element).kind == NumberKind::floating;
    require_type(element == scaling.type || element == Element::ue8m0 || (element == Element::s32 && takes_words), name,
                 " must be ", dtype_name(scaling.type),
                 takes_words ? ", float8_e8m0fnu or int32 (packed UE8M0 exponents)" : " or float8_e8m0fnu", ", got ",
                 describe(type));
}

}  // namespace

int64_t entry_k(Element lying, const Scaling& scaling) { return lying == Element::s32 ? word_k(scaling) : scaling.k; }

Scales check_scales(const TensorView& sf, const ScaledOperand& operand, const GemmCall& call, const Axes& axes) {
    const char* const name = operand.scales_name;
    const Element element = element_of(sf.dtype());
    check_scale_dtype(element, sf.dtype(), operand.scaling, name, call.problem);
    require_device(sf, name, call.device, "a");
    const int64_t granularity = operand.row_granularity, k = entry_k(element, operand.scaling);
    require(element != Element::s32 || granularity == 1, "packed scales must be per row, but the recipe says one per ",
            granularity, " rows of ", operand.name);
    const int64_t scale_rows = (operand.rows + granularity - 1) / granularity, k_scales = (operand.k + k - 1) / k;
    const ScalesText wanted{
        axes, operand.groups, scale_rows, k_scales, {element, granularity, k, operand.scaling.type}, operand.name};
    const Matrix m = matrix_of(sf, name, axes, wanted);
    require(m.groups == operand.groups && m.rows == scale_rows && m.cols == k_scales, name, " must be ", wanted,
            ", got shape ", describe_shape(sf));
    require(m.row_stride >= 0 && m.col_stride >= 0, name, " must not have negative strides, got ",
            describe_strides(sf));
    return {.data = m.data,
            .element = element,
            .scaling = operand.scaling,
            .operand_rows = operand.rows,
            .row_granularity = static_cast<int32_t>(granularity),
            .groups = operand.groups,
            .rows = scale_rows,
            .k_scales = k_scales,
            .scales_of_row = (operand.k + operand.scaling.k - 1) / operand.scaling.k,
            .group_stride = axes.group < 0 ? 0 : sf.stride(axes.group),
            .row_stride = m.row_stride,
            .k_stride = m.col_stride,
            .bytes = m.bytes};
}

void set_scalings(Problem& problem, const Granularities& given) {
    const Pair& pair = pair_of(problem);
    problem.a.scaling = scaling_of(pair.scalings_a, given.a, "a");
    problem.b.scaling = scaling_of(pair.scalings_b, given.b, "b");
}

void check_scales(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const Granularities& given,
                  const Axes& axes_a, const Axes& axes_b) {
    Problem& p = call.problem;
    Granularities shared = given;
    const bool words = element_of(b.scales->dtype()) == Element::s32;
    if (shared.b.rows == kRowsByDefault) shared.b.rows = words ? 1 : kScaleBlockRows;
    set_scalings(p, shared);
    call.scales_a =
        check_scales(*a.scales, {"a", "a's scales", call.a.groups, p.m, p.k, p.a.scaling, shared.a.rows}, call, axes_a);
    call.scales_b =
        check_scales(*b.scales, {"b", "b's scales", call.b.groups, p.n, p.k, p.b.scaling, shared.b.rows}, call, axes_b);
    const auto packed = [](const Scales& s) { return s.scaling.in_instruction() && s.element != Element::s32; };
    p.packs_scales_a = packed(call.scales_a), p.packs_scales_b = packed(call.scales_b);
}

}  // namespace deep_gemm
