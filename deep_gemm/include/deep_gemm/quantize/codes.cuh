// Quotients to codes, and codes to memory.
#pragma once

#include <deep_gemm/ptx/convert.cuh>
#include <deep_gemm/quantize/config.cuh>

namespace deep_gemm {

/// A magnitude to a floating-point code of `kMantissa` bits below `kSmallestExponent`s leading one, to nearest, ties to
/// even: rounded in its own bits, and by an addition where it is subnormal.
template <int32_t kMantissa, int32_t kSmallestExponent, uint32_t kLargest>
DG_DEVICE uint32_t magnitude_code(uint32_t bits) {
    constexpr int32_t kDropped = 23 - kMantissa;
    constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 + kSmallestExponent) << 23,
                       kShift = static_cast<uint32_t>(127 + kSmallestExponent - kMantissa + 23) << 23;
    const uint32_t subnormal = __float_as_uint(__fadd_rn(__uint_as_float(bits), __uint_as_float(kShift))) - kShift;
    const uint32_t rounded = bits + ((1u << (kDropped - 1)) - 1) + (bits >> kDropped & 1);
    const uint32_t normal = (rounded >> kDropped) - (static_cast<uint32_t>(126 + kSmallestExponent) << kMantissa);
    return bits < kSmallestNormal ? subnormal : min(normal, kLargest);
}

/// Codes of eight quotients, as they lie in memory: 8 bytes, or 4 of FP4.
template <Element kOutput>
DG_DEVICE uint2 codes_of(const float (&quotients)[kPieceK]) {
    static_assert(kOutput == Element::e4m3);
    uint32_t pairs[kPieceK / 2];  // the first in the low byte
#pragma unroll
    for (int32_t i = 0; i < kPieceK / 2; ++i) pairs[i] = ptx::pack_e4m3(quotients[2 * i], quotients[2 * i + 1]);
    return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}

/// Writes codes of a row from `column` on, those behind k left out.
template <QuantizeConfig c>
DG_DEVICE void store_codes(const QuantizeParams& params, int64_t row, int32_t column, uint2 codes) {
    uint8_t* const target = params.q + row + column;
    const int32_t left = params.k - column;
    if constexpr (c.wide) {
        if (left > 0) *reinterpret_cast<uint2*>(target) = codes;
    } else {
#pragma unroll
        for (int32_t i = 0; i < kPieceK; ++i)
            if (i < left) target[i] = static_cast<uint8_t>((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
    }
}

}  // namespace deep_gemm
