#include "checks_integer.hpp"

#include <bit>

#include "dtypes.hpp"
#include "overlap.hpp"

namespace deep_gemm {
namespace {

/// One for all rows: 0-dimensional, [1] or [1, 1]. One for each: [rows] or [rows, 1].
Scales check_whole_scales(const IntegerOperand& operand, const char* name, const char* rows_name, const GemmCall& call,
                          int64_t rows) {
    Scales scales{.element = Element::fp32, .scaling = kWholeRowScales, .rows = rows, .k_scales = 1, .row_stride = 0};
    if (!operand.scales) {
        scales.value = std::bit_cast<float>(static_cast<uint32_t>(operand.number));
        return scales;
    }
    const TensorView& given = *operand.scales;
    require_type(element_of(given.dtype()) == Element::fp32, name, " must be float32, but is ",
                 describe(given.dtype()));
    require_device(given, name, call.device, "a");
    const int dimensions = given.ndim();
    const int64_t first = dimensions > 0 ? given.size(0) : 1;
    require(dimensions <= 2 && (dimensions < 2 || given.size(1) == 1) && (first == 1 || first == rows), name,
            " must be one (a number, or a tensor of one element) or one a row (", rows_name, " = ", rows,
            " of them), but has shape ", describe_shape(given), ": groups along K and blocks are not served yet");
    scales.data = given.data(), scales.bytes = extent_bytes(given);
    if (first > 1) scales.row_stride = to_int32(given.stride(0), "the distance between scales");
    return scales;
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

}  // namespace

GemmCall check_integers(const IntegerOperand& a, const IntegerOperand& b, const TensorView& d, const OptionalTensor& c,
                        const OptionalTensor& bias, int64_t layout) {
    const OptionalTensor none;
    GemmCall call = start_call({a.data, none}, {b.data, none}, Grouping::dense, Element::s32);
    Problem& p = call.problem;
    require(a.scaled() == b.scaled(), a.scaled() ? "b" : "a", " must have scales, as ", a.scaled() ? "a" : "b", " has");
    check_dense_shapes(call, a.argument(), b.argument(), d, c, layout);
    const bool exact = p.output == Element::s32;
    require_type(exact != a.scaled(), "d must be ",
                 exact ? "a floating dtype where a and b have scales" : "int32 where a and b have no scales (give 1.0)",
                 ", but is ", describe(d.dtype()));
    require(!exact || !bias, "bias must be None where d is int32");
    if (exact) p.a.scaling = p.b.scaling = kUnscaled;
    if (bias) check_bias(call, *bias, d);
    if (p.m == 0 || p.n == 0 || p.k == 0) return call;
    check_lines(call);
    if (!exact) {
        call.scales_a = check_whole_scales(a, "a's scales", "M", call, p.m);
        call.scales_b = check_whole_scales(b, "b's scales", "N", call, p.n);
    }
    require_operands_apart(d, a.argument(), b.argument());
    p.compiled = compiled_shape(p, layout);
    return call;
}

}  // namespace deep_gemm
