// Quotients to codes, and codes to memory.
#pragma once

#include <deep_gemm/ptx/convert.cuh>
#include <deep_gemm/ptx/maximum.cuh>
#include <deep_gemm/quantize/config.cuh>

namespace deep_gemm {

/// E2M1 codes of eight values, the first in the lowest nibble: of the nearest number, of two equally near ones the even
/// code; 6 where they are larger, NaN too, and no -0.
///
/// Codes of 0 to 2 are twice their numbers, of 2 to 4 two more than theirs, of 4 to 6 four more than half. Of each
/// magnitude the least of the three is its code, and rounding halves to even integers is rounding to even codes.
DG_DEVICE uint32_t e2m1_codes(const float (&values)[kPieceK]) {
    constexpr float kIntegers = 12582912.0f;  // 1.5 * 2^23, whose last bit is one
    constexpr uint32_t kSign = 8, kInAll = 0x11111111u * 0x4b400000u;
    uint32_t word = 0;
#pragma unroll
    for (int32_t i = 0; i < kPieceK; ++i) {
        const float magnitude = fminf(fabsf(values[i]), 6.0f);
        const float twice = __fmaf_rn(magnitude, 2.0f, kIntegers), half = __fmaf_rn(magnitude, 0.5f, kIntegers + 4.0f);
        word += __float_as_uint(fminf(fminf(twice, __fadd_rn(magnitude, kIntegers + 2.0f)), half)) << 4 * i;
        if (values[i] < -0.25f) word += kSign << 4 * i;  // what is nearer to zero has no sign
    }
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
        uint32_t bits[kPieceK];
#pragma unroll
        for (int32_t i = 0; i < kPieceK; ++i) {
            // No magnitude is beyond the largest by more than roundings are, which 127 takes; with zero points
            // roundings of both may add up. Of bounds that are integers it does not matter whether they are applied
            // before rounding.
            float shifted = quotients[i];
            if constexpr (c.zeros) shifted = fminf(fmaxf(__fadd_rn(nearest(shifted), zero), -128.0f), 127.0f);
            bits[i] = ptx::integer_bits(shifted);
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

/// Where the code of the `column`th element of the row that begins at `row`, in bytes, lies.
template <Constant<QuantizeConfig> c>
DG_DEVICE uint8_t* place_of_codes(const QuantizeParams& params, int64_t row, int32_t column) {
    return params.q + (row + column / (8 / bits(c.output)));
}

/// Writes codes there, those behind `left` elements left out.
template <Constant<QuantizeConfig> c>
DG_DEVICE void store_codes(uint8_t* target, int32_t left, uint2 codes) {
    constexpr int32_t kPerByte = 8 / bits(c.output);
    if constexpr (c.wide && kPerByte == 1) {
        if (left > 0) *reinterpret_cast<uint2*>(target) = codes;
    } else if constexpr (c.wide) {
        if (left > 0) *reinterpret_cast<uint32_t*>(target) = codes.x;
    } else {
#pragma unroll
        for (int32_t i = 0; i < kPieceK / kPerByte; ++i)
            if (i < left / kPerByte) target[i] = static_cast<uint8_t>((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
    }
}

/// Quantises eight values and writes their codes, which are returned.
template <Constant<QuantizeConfig> c, typename Divisor>
DG_DEVICE uint2 store_quantized(uint8_t* target, int32_t left, const float (&values)[kPieceK], const Divisor& divisor,
                                float zero = 0.0f) {
    float quotients[kPieceK];
    divisor.divide(values, quotients);
    const uint2 codes = codes_of<c>(quotients, zero);
    store_codes<c>(target, left, codes);
    return codes;
}

}  // namespace deep_gemm
