// Division of small numbers by what the host knows.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

/// Division by a number that the host knows, in three instructions instead of some twenty: every role pays for it at
/// every tile. Granlund and Montgomery, Division by Invariant Integers using Multiplication (PLDI 1994), figure 4.1.
struct FastDivisor {
    uint32_t divisor = 1, multiplier = 0, shift = 0;

    FastDivisor() = default;
    explicit FastDivisor(uint32_t d) : divisor(d) {
        while ((uint64_t{1} << shift) < d) ++shift;
        multiplier = static_cast<uint32_t>((((uint64_t{1} << shift) - d) << 32) / d + 1);
    }

#if defined(__CUDACC__)
    /// Of values below 2^31.
    DG_DEVICE int32_t quotient(int32_t value) const {
        return static_cast<int32_t>((__umulhi(value, multiplier) + value) >> shift);
    }
#endif
};

}  // namespace deep_gemm
