// FP32 rounded to nearest TF32, as the sum of two numbers of BF16.
#pragma once

#include <deep_gemm/ptx/convert.cuh>
#include <deep_gemm/ptx/maximum.cuh>
#include <deep_gemm/types.cuh>

namespace deep_gemm {

/// To nearest TF32, ties to even, as two numbers of BF16 in the upper halves of words. What is not finite stays so.
DG_DEVICE void split_tf32(float value, uint32_t& high, uint32_t& low) {
    const uint32_t bits = __float_as_uint(value);
    const bool finite = (bits & 0x7f800000) != 0x7f800000;
    const uint32_t rounded = finite ? (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu : bits;
    high = isnan(value) ? 0x7fc00000u : rounded & 0xffff0000;
    low = finite ? __float_as_uint(__uint_as_float(rounded) - __uint_as_float(high)) : 0;
    if ((high & 0x7f800000) == 0x7f800000) low = 0;  // rounded to infinity
}

/// The same where the rounded number is finite.
DG_DEVICE void split_finite_tf32(float value, uint32_t& high, uint32_t& low) {
    const uint32_t bits = __float_as_uint(value), rounded = bits + 0xfff + (bits >> 13 & 1);
    high = rounded & 0xffff0000;
    low = __float_as_uint(__uint_as_float(rounded & ~0x1fffu) - __uint_as_float(high));
}

template <auto kSplit, int32_t kRows, int32_t kValues>
DG_DEVICE void split_all(const float (&values)[kRows][kValues], uint32_t (&high)[kRows][kValues / 2],
                         uint32_t (&low)[kRows][kValues / 2]) {
#pragma unroll
    for (int32_t row = 0; row < kRows; ++row)
#pragma unroll
        for (int32_t i = 0; i < kValues / 2; ++i) {
            uint32_t of_first[2], of_second[2];
            kSplit(values[row][2 * i], of_first[0], of_first[1]);
            kSplit(values[row][2 * i + 1], of_second[0], of_second[1]);
            high[row][i] = ptx::permute_bytes(of_first[0], of_second[0], 0x7632);
            low[row][i] = ptx::permute_bytes(of_first[1], of_second[1], 0x7632);
        }
}

/// A thread's values, in pairs.
template <int32_t kRows, int32_t kValues>
DG_DEVICE void split_pairs(const float (&values)[kRows][kValues], uint32_t (&high)[kRows][kValues / 2],
                           uint32_t (&low)[kRows][kValues / 2]) {
    constexpr uint32_t kRoundsToInfinity = 0x7f7ff000;  // from there on
    float largest = 0;
#pragma unroll
    for (int32_t row = 0; row < kRows; ++row)
#pragma unroll
        for (int32_t i = 0; i < kValues; ++i) largest = ptx::max_or_nan(largest, fabsf(values[row][i]));
    split_all<split_finite_tf32>(values, high, low);
    if (!(largest < __uint_as_float(kRoundsToInfinity))) split_all<split_tf32>(values, high, low);
}

/// Adds the squares of a pair of BF16.
DG_DEVICE void add_squares(float& squares, uint32_t pair) {
    const float first = __uint_as_float(pair << 16), second = __uint_as_float(pair & 0xffff0000);
    squares = __fmaf_rn(first, first, squares);
    squares = __fmaf_rn(second, second, squares);
}

}  // namespace deep_gemm
