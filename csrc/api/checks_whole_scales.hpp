// Scales that all of K shares, which are applied to complete sums; and what is added to these.
#pragma once

#include "checks.hpp"

namespace deep_gemm {

/// In the place of a number's bits: there is none.
inline constexpr int64_t kNoNumber = -1;

/// Whose rows they are for, in errors too.
struct WholeScaled {
    const char *name, *rows_name;
    int64_t groups, rows;
};

/// One for all rows: a number's bits, or a tensor of one element. One for each: [rows] or [rows, 1], with groups before
/// them where there are several.
Scales check_whole_scales(const OptionalTensor& scales, int64_t number, const WholeScaled& operand,
                          const GemmCall& call);

void check_bias(GemmCall& call, const TensorView& bias, const TensorView& d);

}  // namespace deep_gemm
