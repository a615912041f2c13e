// Products of plain integers: sums are exact, and may come without scales.
#pragma once

#include "checks.hpp"

namespace deep_gemm {

/// D is int32 where integers have no scales, and nowhere else.
void require_sums_or_scales(const Problem& problem, const TensorView& d);

/// The scales of both operands, if they have some. B's are for all of K unless a recipe was given.
void check_integer_scales(GemmCall& call, const OperandArgument& a, const OperandArgument& b,
                          const Granularities& given);

}  // namespace deep_gemm
