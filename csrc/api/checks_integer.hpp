// Products of integers: sums are exact, and scaled when they are complete.
#pragma once

#include "checks_whole_scales.hpp"

namespace deep_gemm {

/// An operand of integers with its scales: a tensor, or the bits of one FP32 number, or neither.
struct IntegerOperand {
    const TensorView& data;
    const OptionalTensor& scales;
    int64_t number;

    bool scaled() const { return scales || number != kNoNumber; }
    OperandArgument argument() const { return {data, scales}; }
};

/// D[M, N] = C + A[M, K] B[N, K].T + bias[N], scaled; or, where there are no scales, exactly.
GemmCall check_integers(const IntegerOperand& a, const IntegerOperand& b, const TensorView& d, const OptionalTensor& c,
                        const OptionalTensor& bias, int64_t layout);

}  // namespace deep_gemm
