#include "checks_integer.hpp"

#include "checks_whole_scales.hpp"
#include "dtypes.hpp"

namespace deep_gemm {

void require_sums_or_scales(const Problem& problem, const TensorView& d) {
    if (sum_of(problem.a.element) != Element::s32) return;
    const bool exact = problem.output == Element::s32;
    require_type(exact != problem.a.scaling.any(), "d must be ",
                 exact ? "a floating dtype where operands have scales"
                       : "int32 where operands have no scales (give 1.0)",
                 ", but is ", describe(d.dtype()));
}

void check_integer_scales(GemmCall& call, const OperandArgument& a, const OperandArgument& b,
                          const Granularities& given) {
    Problem& p = call.problem;
    const bool whole = given.b.rows == kRowsByDefault;
    require(whole || p.a.scaling.any(), "recipe must be None where operands have no scales");
    if (!p.a.scaling.any()) return;
    check_token_scales(call, a);
    check_zero_points(call, a);
    if (whole) {
        call.scales_b = check_whole_scales(b,
                                           {b.scales_name, "N", call.b.groups, p.n,
                                            ": scales of groups of K, or of blocks, want a recipe"},
                                           call);
        return;
    }
    require(given.a.rows == 1 && given.b.k == kScaleGroupK,
            "recipe must be (1, 1, 128) or (1, 128, 128), or None, but is (", given.a.rows, ", ", given.b.rows, ", ",
            given.b.k, ")");
    require(b.scales.has_value(), b.scales_name, " must be a tensor where a recipe is given, but are a number");
    require_type(element_of(b.scales->dtype()) == Element::fp32, b.scales_name, " must be float32, but are ",
                 describe(b.scales->dtype()));
    p.b.scaling = {Element::fp32, static_cast<int32_t>(given.b.rows), kScaleGroupK};
    call.scales_b = check_scales(*b.scales, {b.name, b.scales_name, call.b.groups, p.n, p.k, p.b.scaling, given.b.rows},
                                 call, last_axes(call.b.groups > 1 || b.scales->ndim() == 3));
}

}  // namespace deep_gemm
