// Quotients to codes, and codes to memory.
#pragma once

#include <deep_gemm/ptx/convert.cuh>
#include <deep_gemm/ptx/maximum.cuh>
#include <deep_gemm/quantize/config.cuh>

namespace deep_gemm {

/// E2M1 codes of eight values, the first in the lowest nibble: of the nearest number, of two equally near ones the even
/// code; 6 where they are larger, NaN too, and no -0.
///
/// A magnitude from 2^e on, or from 1 where e is less, has steps of 2^e / 2. Added to 2^22 as many times, it is rounded
/// to them, and the sum's last bits are its steps: two and more, behind two for each e. What all sums have in common is
/// subtracted at the end.
DG_DEVICE uint32_t e2m1_codes(const float (&values)[kPieceK]) {
    constexpr uint32_t kOne = 127u << 23, kSteps = 22u << 23, kInCommon = kSteps + (kOne >> 22);
    uint32_t word = 0;
#pragma unroll
    for (int32_t i = 0; i < kPieceK; ++i) {
        const float magnitude = fminf(fabsf(values[i]), 6.0f);
        const uint32_t power = max(__float_as_uint(magnitude) & 0x7f800000u, kOne);
        const uint32_t sum = __float_as_uint(__fadd_rn(magnitude, __uint_as_float(power + kSteps)));
        word += (sum - power + (power >> 22)) << 4 * i;
        if (values[i] < -0.25f) word += 8u << 4 * i;  // what is nearer to zero has no sign
    }
    constexpr uint32_t kInAll = 0x11111111u * kInCommon;
    return word - kInAll;
}

/// The nearest integer, halves to the even one, of what is within 2^22.
DG_DEVICE float nearest(float value) {
    constexpr float kIntegers = 12582912.0f;  // 1.5 * 2^23, whose last bit is one
    return __fsub_rn(__fadd_rn(value, kIntegers), kIntegers);
}

/// Codes of eight quotients as they lie in memory: 8 bytes, or 4 of FP4. To those of integers `zero` is added.
template <Constant<QuantizeConfig> c>
DG_DEVICE uint2 codes_of(const float (&quotients)[kPieceK], float zero) {
    if constexpr (c.output == Element::e4m3) {
        uint32_t pairs[kPieceK / 2];  // the first in the low byte
#pragma unroll
        for (int32_t i = 0; i < kPieceK / 2; ++i) pairs[i] = ptx::pack_e4m3(quotients[2 * i], quotients[2 * i + 1]);
        return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
    } else if constexpr (c.output == Element::s8) {
        constexpr float kLowest = c.zeros ? -128.0f : -127.0f, kHighest = 127.0f;
        uint32_t bits[kPieceK];
#pragma unroll
        for (int32_t i = 0; i < kPieceK; ++i) {
            // Of bounds that are integers it does not matter whether they are applied before rounding.
            const float shifted = c.zeros ? __fadd_rn(nearest(quotients[i]), zero) : quotients[i];
            bits[i] = ptx::integer_bits(fminf(fmaxf(shifted, kLowest), kHighest));
        }
        const auto four = [&](int32_t i) {
            return ptx::permute_bytes(ptx::permute_bytes(bits[i], bits[i + 1], 0x0040),
                                      ptx::permute_bytes(bits[i + 2], bits[i + 3], 0x0040), 0x5410);
        };
        return {four(0), four(4)};
    } else {
        static_assert(c.output == Element::e2m1r);
        return {e2m1_codes(quotients), 0};
    }
}

/// Writes codes of a row from `column` on, those behind k left out. `row` is where it begins, in bytes.
template <Constant<QuantizeConfig> c>
DG_DEVICE void store_codes(const QuantizeParams& params, int64_t row, int32_t column, uint2 codes) {
    constexpr int32_t kPerByte = 8 / bits(c.output);
    uint8_t* const target = params.q + row + column / kPerByte;
    const int32_t left = (params.k - column) / kPerByte;
    if constexpr (c.wide && kPerByte == 1) {
        if (left > 0) *reinterpret_cast<uint2*>(target) = codes;
    } else if constexpr (c.wide) {
        if (left > 0) *reinterpret_cast<uint32_t*>(target) = codes.x;
    } else {
#pragma unroll
        for (int32_t i = 0; i < kPieceK / kPerByte; ++i)
            if (i < left) target[i] = static_cast<uint8_t>((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
    }
}

/// Quantises eight values and writes their codes, which are returned.
template <Constant<QuantizeConfig> c, typename Divisor>
DG_DEVICE uint2 store_quantized(const QuantizeParams& params, int64_t row, int32_t column,
                                const float (&values)[kPieceK], const Divisor& divisor, float zero = 0.0f) {
    float quotients[kPieceK];
    divisor.divide(values, quotients);
    const uint2 codes = codes_of<c>(quotients, zero);
    store_codes<c>(params, row, column, codes);
    return codes;
}

}  // namespace deep_gemm
