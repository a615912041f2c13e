#include "checks_integer.hpp"

#include "checks_whole_scales.hpp"
#include "overlap.hpp"

namespace deep_gemm {
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
        call.scales_a = check_whole_scales(a.scales, a.number, {"a's scales", "M", 1, p.m}, call);
        call.scales_b = check_whole_scales(b.scales, b.number, {"b's scales", "N", 1, p.n}, call);
    }
    require_operands_apart(d, a.argument(), b.argument());
    p.compiled = compiled_shape(p, layout);
    return call;
}

}  // namespace deep_gemm
