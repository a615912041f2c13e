#include "checks_channel_scales.hpp"

#include <bit>

#include "../call/dtypes.hpp"
#include "../call/overlap.hpp"

namespace deep_gemm {
namespace {

/// Whether these are scales for each row and 128 of K, and not one for a row or for all. Words of exponents always are.
bool has_k_groups(const OptionalTensor& scales, int64_t k, bool masked) {
    if (!scales || scales->ndim() != (masked ? 3 : 2)) return false;
    const int64_t groups = (k + kScaleGroupK - 1) / kScaleGroupK;
    return is_int32(scales->dtype()) || (groups > 1 && scales->size(scales->ndim() - 1) == groups);
}

/// Of one value for all rows, or one for each: distances between groups, and between rows; 0 of one for all.
struct Distances {
    int64_t group = 0, row = 0;
};

/// [rows] or [rows, 1], with groups before them where there are several, or may be; or one element.
Distances distances_of(const TensorView& given, const ChannelScaled& operand) {
    const auto& [name, rows_name, groups, rows, grouped, otherwise] = operand;
    int dimensions = given.ndim();
    int64_t elements = 1;
    for (int i = 0; i < dimensions; ++i) elements *= given.size(i);
    if (elements == 1) return {};
    const bool of_one_group = grouped && groups == 1 && dimensions > 1 && given.size(0) == 1;
    const int first = groups > 1 || of_one_group ? 1 : 0;
    if (dimensions == first + 2 && given.size(first + 1) == 1) --dimensions;
    require(dimensions == 0 ||
                (dimensions == first + 1 && given.size(first) == rows && (first == 0 || given.size(0) == groups)),
            name, " must be one (a number, or a tensor of one element) or one a row (", rows_name, " = ", rows,
            " of them", Later{[&] { return groups > 1 ? concat(" of each of ", groups, " groups") : ""; }},
            "), got shape ", describe_shape(given), otherwise);
    if (dimensions == 0) return {};
    return {.group = groups > 1 ? given.stride(0) : 0,
            .row = rows > 1 ? to_int32(given.stride(first), "the distance between scales") : 0};
}

void check_rounding(GemmCall& call, int64_t rounding, const TensorView& d) {
    Problem& p = call.problem;
    if (rounding == kRoundAtRandom) {
        require_type(p.output == Element::bf16, "d must be bfloat16 where it is rounded at random, got ",
                     describe(d.dtype()));
        require(!p.add_c, "c must be None where d is rounded at random");
        p.rounding = Rounding::at_random;
    } else if (rounding > 0) {
        require_type(p.output == Element::e4m3, "d must be float8_e4m3fn for FP8CastWithClamp, got ",
                     describe(d.dtype()));
        p.rounding = Rounding::clamped;
        call.clamp.bound = std::bit_cast<float>(static_cast<uint32_t>(rounding));
    }
}

}  // namespace

Scales check_channel_scales(const OperandArgument& argument, const ChannelScaled& operand, const GemmCall& call) {
    Scales found{.element = Element::fp32,
                 .scaling = kWholeRowScales,
                 .operand_rows = operand.rows,
                 .groups = operand.groups,
                 .rows = operand.rows,
                 .k_scales = 1,
                 .row_stride = 0};
    if (!argument.scales) {
        found.value = std::bit_cast<float>(static_cast<uint32_t>(argument.whole->scale));
        return found;
    }
    const TensorView& given = *argument.scales;
    found.element = element_of(given.dtype());
    const bool takes_exponents = call.problem.a.element == Element::e4m3;  // as its scales for groups of K
    require_type(found.element == Element::fp32 || (takes_exponents && found.element == Element::ue8m0), operand.name,
                 " must be float32", takes_exponents ? " or float8_e8m0fnu" : "", ", got ", describe(given.dtype()));
    require_device(given, operand.name, call.device, "a");
    const Distances distances = distances_of(given, operand);
    found.data = given.data(), found.bytes = extent_bytes(given);
    found.group_stride = distances.group, found.row_stride = distances.row;
    return found;
}

void check_zero_points(GemmCall& call, const OperandArgument& a) {
    if (!a.whole->asymmetric()) return;
    Problem& p = call.problem;
    require(sum_of(p.a.element) == Element::s32, "a must have no zeros where it is ", dtype_name(p.a.element),
            ": zero points are of integers");
    require(p.a.scaling.per_channel(),
            "a's scales must be one, or one a row, where a has zeros, got scales for 128 of K each");
    p.asymmetric_a = 1;
    if (a.whole->zero != kNoZero) {
        call.zeros_a.value = static_cast<int32_t>(a.whole->zero);
        return;
    }
    const TensorView& zeros = **a.whole->zeros;
    require_type(is_int32(zeros.dtype()), "a's zeros must be int32, got ", describe(zeros.dtype()));
    require_device(zeros, "a's zeros", call.device, "a");
    const Distances distances =
        distances_of(zeros, {"a's zeros", "M", call.a.groups, p.m, p.grouping == Grouping::masked, ""});
    call.zeros_a = {
        .data = zeros.data(), .group_stride = distances.group, .stride = distances.row, .bytes = extent_bytes(zeros)};
}

void check_token_scales(GemmCall& call, const OperandArgument& a) {
    Problem& p = call.problem;
    const bool masked = p.grouping == Grouping::masked;
    if (has_k_groups(a.scales, p.k, masked)) {
        p.a.scaling = kRowScales;
        call.scales_a = check_scales(*a.scales, {"a", "a's scales", call.a.groups, p.m, p.k, p.a.scaling, 1}, call,
                                     last_axes(a.scales->ndim() == 3));
    } else {
        p.a.scaling = kWholeRowScales;
        call.scales_a = check_channel_scales(a,
                                             {"a's scales", "M", call.a.groups, p.m, masked,
                                              ": and one a row and 128 of K would be [M, ceil(K / 128)]"},
                                             call);
    }
}

void check_alpha(GemmCall& call, const Alpha& alpha, const TensorView& d) {
    if (alpha.number != kNoNumber) check_rounding(call, alpha.number >> 32, d);
    if (!alpha.tensor && (alpha.number == kNoNumber || (alpha.number & kNoFactor) == kNoFactor)) return;
    Problem& p = call.problem;
    require(p.output != Element::s32, "epilogue must have no Alpha where d is int32");
    p.alpha = 1;
    Scales& found = call.alpha;
    found = {.element = Element::fp32, .scaling = kWholeRowScales, .rows = p.n, .k_scales = 1, .row_stride = 0};
    if (!alpha.tensor) {
        found.value = std::bit_cast<float>(static_cast<uint32_t>(alpha.number));
        return;
    }
    const TensorView& given = *alpha.tensor;
    require_type(element_of(given.dtype()) == Element::fp32, "alpha must be float32, got ", describe(given.dtype()));
    require_device(given, "alpha", call.device, "a");
    const bool of_experts = is_m_grouped(p.grouping) && given.ndim() == 1 && given.size(0) == p.num_groups;
    require(of_experts || given.ndim() == 0 || (given.ndim() == 1 && given.size(0) == 1),
            "alpha must be a number, or a tensor of one element", Later{[&] {
                return is_m_grouped(p.grouping) ? concat(" or of one for each of ", p.num_groups, " experts") : "";
            }},
            ", got shape ", describe_shape(given));
    require_apart(d, given, "alpha");
    found.data = given.data(), found.bytes = extent_bytes(given);
    if (of_experts && p.num_groups > 1) found.groups = p.num_groups, found.group_stride = given.stride(0);
}

void check_row_scale(GemmCall& call, const TensorView& weights, const TensorView& d, const Axes& axes_of_d) {
    Problem& p = call.problem;
    constexpr const char* kName = "the epilogue's row weights";
    require(p.output != Element::s32, "epilogue must have no RowScale where d is int32");
    require_type(element_of(weights.dtype()) == Element::fp32, kName, " must be float32, got ",
                 describe(weights.dtype()));
    require_device(weights, kName, call.device, "a");
    const int n = axes_of_d.row, groups = axes_of_d.group;
    const auto wanted = [&] {
        if (groups < 0) return concat("[M] = [", p.m, "]");
        if (p.grouping == Grouping::masked) return concat("[G, max_m] = [", p.num_groups, ", ", p.m, "]");
        return concat("d's shape without columns, ", n == 0 ? p.m : p.num_groups, " x ", n == 0 ? p.num_groups : p.m);
    };
    require(weights.ndim() == axes_of_d.count() - 1 && weights.size(n) == p.m &&
                (groups < 0 || weights.size(groups) == p.num_groups),
            kName, " must be ", Later{wanted}, ", got shape ", describe_shape(weights));
    require_apart(d, weights, kName);
    p.row_scale = 1;
    p.in_place = 0;  // C is multiplied too, so it cannot be left to the L2 to add
    call.row_scale = {.data = weights.data(),
                      .element = Element::fp32,
                      .scaling = kWholeRowScales,
                      .rows = p.m,
                      .k_scales = 1,
                      .group_stride = groups < 0 ? 0 : weights.stride(groups),
                      .row_stride = weights.stride(n),
                      .bytes = extent_bytes(weights)};
}

void check_bias(GemmCall& call, const TensorView& bias, const TensorView& d) {
    Problem& p = call.problem;
    p.bias = element_of(bias.dtype());
    const auto fits = [&](Element element) {
        return facts(element).kind == NumberKind::floating && lists<Element>(pair_of(p).outputs, element);
    };
    require_type(p.bias != Element::none && fits(p.bias),
                 "bias must have a dtype that d may have, a floating one, got ", describe(bias.dtype()));
    require_device(bias, "bias", call.device, "a");
    require(p.output != Element::s32, "bias must be None where d is int32");
    const int n = is_m_grouped(p.grouping) ? 1 : 0;  // its dimension
    require(bias.ndim() == n + 1 && bias.size(n) == p.n && (n == 0 || bias.size(0) == p.num_groups), "bias must be ",
            Later{[&] { return n == 0 ? concat("[N] = [", p.n) : concat("[G, N] = [", p.num_groups, ", ", p.n); }},
            "], got shape ", describe_shape(bias));
    require_apart(d, bias, "bias");
    call.bias = {.data = bias.data(),
                 .group_stride = n == 0 ? 0 : bias.stride(0),
                 .stride = to_int32(bias.stride(n), "the distance between elements of bias"),
                 .bytes = extent_bytes(bias)};
}

}  // namespace deep_gemm
