// Scales that all of K shares, which are applied to complete sums; and what is added to these.
#pragma once

#include "checks.hpp"

namespace deep_gemm {

/// Whose rows they are for, and what else there may be, for errors.
struct ChannelScaled {
    const char *name, *rows_name;
    int64_t groups, rows;
    bool grouped;  // there may be several groups, if there is one
    const char* otherwise;
};

/// One for all rows: a number's bits, or a tensor of one element. One for each: [rows] or [rows, 1], with groups before
/// them where there are several.
Scales check_channel_scales(const OperandArgument& argument, const ChannelScaled& operand, const GemmCall& call);

/// The scales of tokens, of which the shape says whether K has groups of them.
void check_token_scales(GemmCall& call, const OperandArgument& a);

/// Zero points of tokens, if they have any.
void check_zero_points(GemmCall& call, const OperandArgument& a);

/// A factor on complete sums: a number's bits, a tensor of one element, or one of an element for each expert; or none.
/// Above the number's 32 bits stands how D is rounded: kRoundAtRandom, or, of what is quantised, the bits of a bound.
struct Alpha {
    const OptionalTensor& tensor;
    int64_t number;
};
inline constexpr int64_t kNoFactor = 0xffffffff, kRoundAtRandom = 1;
void check_alpha(GemmCall& call, const Alpha& alpha, const TensorView& d);

/// Float32 of each row of D, whose dimensions they have but the last, columns.
void check_row_scale(GemmCall& call, const TensorView& weights, const TensorView& d, const Axes& axes_of_d);

/// [N], or [groups, N] of experts.
void check_bias(GemmCall& call, const TensorView& bias, const TensorView& d);

}  // namespace deep_gemm
