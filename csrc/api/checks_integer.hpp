// Products of integers: sums are exact, and scaled when they are complete.
#pragma once

#include <optional>

#include "checks.hpp"

namespace deep_gemm {

inline constexpr int64_t kNoNumber = -1;

/// An operand of integers with its scales: a tensor, or the bits of one FP32 number, or neither.
struct IntegerOperand {
    const TensorView& data;
    const std::optional<TensorView>& scales;
    int64_t number;

    bool scaled() const { return scales || number != kNoNumber; }
    OperandArgument argument() const { return {data, scales ? &*scales : nullptr}; }
};

/// D[M, N] = C + A[M, K] B[N, K].T + bias[N], scaled; or, where there are no scales, exactly.
GemmCall check_integers(const IntegerOperand& a, const IntegerOperand& b, const TensorView& d,
                        const std::optional<TensorView>& c, const std::optional<TensorView>& bias,
                        int64_t compiled_dims);

}  // namespace deep_gemm
