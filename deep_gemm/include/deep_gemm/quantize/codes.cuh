// Quotients to codes, and codes to memory.
#pragma once

#include <deep_gemm/ptx/convert.cuh>
#include <deep_gemm/ptx/maximum.cuh>
#include <deep_gemm/quantize/config.cuh>

namespace deep_gemm {

/// The E2M1 code of the nearest number, of two equally near ones the even code; 6 where it is larger, and no -0.
DG_DEVICE uint32_t e2m1_code(float value) {
    constexpr uint32_t kHalves = 149u << 23;  // 2^22, whose last bit is one half
    const uint32_t bits = __float_as_uint(fabsf(value)), rounded = bits + 0x1fffffu + (bits >> 22 & 1);
    const uint32_t below_one = __float_as_uint(__fadd_rn(fabsf(value), __uint_as_float(kHalves))) - kHalves;
    const uint32_t code = bits < 0x3f800000u ? below_one : min((rounded >> 22) - 252u, 7u);
    return code | (value < 0.0f && code != 0 ? 8u : 0u);
}

/// The nearest integer, halves to the even one, of what is within 2^22.
DG_DEVICE float nearest(float value) {
    constexpr float kIntegers = 12582912.0f;  // 1.5 * 2^23, whose last bit is one
    return __fsub_rn(__fadd_rn(value, kIntegers), kIntegers);
}

/// The bits of an integer within 2^22, its lowest byte first.
DG_DEVICE uint32_t integer_bits(float integer) { return __float_as_uint(__fadd_rn(integer, 12582912.0f)); }

/// Codes of eight quotients as they lie in memory: 8 bytes, or 4 of FP4. To those of integers `zero` is added.
template <QuantizeConfig c>
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
            bits[i] = integer_bits(fminf(fmaxf(shifted, kLowest), kHighest));
        }
        const auto four = [&](int32_t i) {
            return ptx::permute_bytes(ptx::permute_bytes(bits[i], bits[i + 1], 0x0040),
                                      ptx::permute_bytes(bits[i + 2], bits[i + 3], 0x0040), 0x5410);
        };
        return {four(0), four(4)};
    } else {
        static_assert(c.output == Element::e2m1r);
        uint32_t word = 0;
#pragma unroll
        for (int32_t i = 0; i < kPieceK; ++i) word |= e2m1_code(quotients[i]) << 4 * i;
        return {word, 0};
    }
}

/// Writes codes of a row from `column` on, those behind k left out. `row` is where it begins, in bytes.
template <QuantizeConfig c>
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
template <QuantizeConfig c, typename Divisor>
DG_DEVICE uint2 store_quantized(const QuantizeParams& params, int64_t row, int32_t column,
                                const float (&values)[kPieceK], const Divisor& divisor, float zero = 0.0f) {
    float quotients[kPieceK];
#pragma unroll
    for (int32_t i = 0; i < kPieceK; ++i) quotients[i] = divisor.quotient(values[i]);
    const uint2 codes = codes_of<c>(quotients, zero);
    store_codes<c>(params, row, column, codes);
    return codes;
}

}  // namespace deep_gemm
