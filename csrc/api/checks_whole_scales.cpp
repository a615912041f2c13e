#include "checks_whole_scales.hpp"

#include <bit>

#include "dtypes.hpp"
#include "overlap.hpp"

namespace deep_gemm {

Scales check_whole_scales(const OptionalTensor& scales, int64_t number, const WholeScaled& operand,
                          const GemmCall& call) {
    const auto& [name, rows_name, groups, rows] = operand;
    Scales found{.element = Element::fp32,
                 .scaling = kWholeRowScales,
                 .groups = groups,
                 .rows = rows,
                 .k_scales = 1,
                 .row_stride = 0};
    if (!scales) {
        found.value = std::bit_cast<float>(static_cast<uint32_t>(number));
        return found;
    }
    const TensorView& given = *scales;
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
            describe_shape(given), ": groups along K and blocks are not served yet");
    if (dimensions == 0) return found;
    if (rows > 1) found.row_stride = to_int32(given.stride(first), "the distance between scales");
    if (groups > 1) found.group_stride = given.stride(0);
    return found;
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
    require(bias.ndim() == 1 && bias.size(0) == p.n, "bias must be [N] = [", p.n, "], but has shape ",
            describe_shape(bias));
    require_apart(d, bias, "bias");
    call.bias = {.data = bias.data(),
                 .stride = to_int32(bias.stride(0), "the distance between elements of bias"),
                 .bytes = extent_bytes(bias)};
}

}  // namespace deep_gemm
