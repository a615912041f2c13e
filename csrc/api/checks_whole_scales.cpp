#include "checks_whole_scales.hpp"

#include <bit>

#include "dtypes.hpp"
#include "overlap.hpp"

namespace deep_gemm {
namespace {

/// Whether these are scales for each row and 128 of K, and not one for a row or for all.
bool has_k_groups(const OptionalTensor& scales, int64_t k, bool masked) {
    const int64_t groups = (k + kScaleGroupK - 1) / kScaleGroupK;
    return scales && scales->ndim() == (masked ? 3 : 2) && groups > 1 && scales->size(scales->ndim() - 1) == groups;
}

}  // namespace

Scales check_whole_scales(const OperandArgument& argument, const WholeScaled& operand, const GemmCall& call) {
    const auto& [name, rows_name, groups, rows, otherwise] = operand;
    Scales found{.element = Element::fp32,
                 .scaling = kWholeRowScales,
                 .groups = groups,
                 .rows = rows,
                 .k_scales = 1,
                 .row_stride = 0};
    if (!argument.scales) {
        found.value = std::bit_cast<float>(static_cast<uint32_t>(argument.whole->scale));
        return found;
    }
    const TensorView& given = *argument.scales;
    require_type(element_of(given.dtype()) == Element::fp32, name, " must be float32, but is ",
                 describe(given.dtype()));
    require_device(given, name, call.device, "a");
    int dimensions = given.ndim();
    int64_t elements = 1;
    for (int i = 0; i < dimensions; ++i) elements *= given.size(i);
    found.data = given.data(), found.bytes = extent_bytes(given);
    if (elements == 1 && groups * rows != 1) return found;
    const int first = groups > 1 ? 1 : 0;
    if (dimensions == first + 2 && given.size(first + 1) == 1) --dimensions;
    require(dimensions == 0 ||
                (dimensions == first + 1 && given.size(first) == rows && (first == 0 || given.size(0) == groups)),
            name, " must be one (a number, or a tensor of one element) or one a row (", rows_name, " = ", rows,
            " of them", groups > 1 ? concat(" of each of ", groups, " groups") : "", "), but has shape ",
            describe_shape(given), otherwise);
    if (dimensions == 0) return found;
    if (rows > 1) found.row_stride = to_int32(given.stride(first), "the distance between scales");
    if (groups > 1) found.group_stride = given.stride(0);
    return found;
}

void check_token_scales(GemmCall& call, const OperandArgument& a) {
    Problem& p = call.problem;
    if (has_k_groups(a.scales, p.k, p.grouping == Grouping::masked)) {
        p.a.scaling = kRowScales;
        call.scales_a = check_scales(*a.scales, {"a", "a's scales", call.a.groups, p.m, p.k, p.a.scaling, 1}, call,
                                     last_axes(a.scales->ndim() == 3));
    } else {
        p.a.scaling = kWholeRowScales;
        call.scales_a = check_whole_scales(a,
                                           {"a's scales", "M", call.a.groups, p.m,
                                            ": and one a row and 128 of K would be [M, ceil(K / 128)]"},
                                           call);
    }
}

void check_bias(GemmCall& call, const TensorView& bias, const TensorView& d) {
    Problem& p = call.problem;
    p.bias = element_of(bias.dtype());
    const auto fits = [&](Element element) {
        return facts(element).kind == NumberKind::floating && lists<Element>(pair_of(p).outputs, element);
    };
    require_type(p.bias != Element::none && fits(p.bias),
                 "bias must have a dtype that d may have, a floating one, but is ", describe(bias.dtype()));
    require_device(bias, "bias", call.device, "a");
    require(p.output != Element::s32, "bias must be None where d is int32");
    const int n = is_m_grouped(p.grouping) ? 1 : 0;  // its dimension
    require(bias.ndim() == n + 1 && bias.size(n) == p.n && (n == 0 || bias.size(0) == p.num_groups), "bias must be ",
            n == 0 ? concat("[N] = [", p.n) : concat("[G, N] = [", p.num_groups, ", ", p.n), "], but has shape ",
            describe_shape(bias));
    require_apart(d, bias, "bias");
    call.bias = {.data = bias.data(),
                 .group_stride = n == 0 ? 0 : bias.stride(0),
                 .stride = to_int32(bias.stride(n), "the distance between elements of bias"),
                 .bytes = extent_bytes(bias)};
}

}  // namespace deep_gemm
