// Products of plain integers: sums are exact, and may come without scales.
#pragma once

#include "checks.hpp"

namespace deep_gemm {

/// D is int32 where integers have no scales, and nowhere else.
void require_sums_or_scales(const Problem& problem, const TensorView& d);

/// The scales of both operands, if they have some, and sums of B's rows. B's scales are for all of K unless a recipe
/// was given.
void check_integer_scales(GemmCall& call, const OperandArgument& a, const OperandArgument& b,
                          const Granularities& given);

/// Rows of integers to add up by themselves, and the scales that a recipe says that they have.
struct RowsToSum {
    DeviceId device = {};
    Matrix b = {};
    std::optional<Scales> scales = {};
};

RowsToSum check_rows_to_sum(const TensorView& b, const OptionalTensor& scales, const Granularities& given);

}  // namespace deep_gemm
