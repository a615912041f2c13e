// Scales that are powers of two: FP32 to exponents, and back.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

/// The UE8M0 exponent of an FP32 scale. What has no such exponent becomes NaN, which no result can hide.
DG_DEVICE uint32_t to_ue8m0(uint32_t bits) {
    constexpr uint32_t kSignAndMantissa = 0x807fffffu;
    constexpr uint32_t kNan = 0xffu;
    return (bits & kSignAndMantissa) != 0 ? kNan : bits >> 23;
}

/// The FP32 of a UE8M0 exponent: 2^(e - 127), the least of which is subnormal; 0xff is NaN.
DG_DEVICE uint32_t from_ue8m0(uint32_t exponent) {
    return exponent == 0 ? 0x00400000u : exponent == 0xffu ? 0x7fc00000u : exponent << 23;
}

}  // namespace deep_gemm
