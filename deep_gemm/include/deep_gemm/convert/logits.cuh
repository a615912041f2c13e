// Codes of queries and keys to what tensor cores multiply, where those have no such numbers.
#pragma once

#include <deep_gemm/convert/bytes.cuh>

namespace deep_gemm {

/// 2^-120 of the value: exponent and mantissa where BF16 has them. Exact, subnormal numbers too.
template <>
struct Convert<Element::e4m3, Element::bf16> {
    static constexpr uint32_t kUndone = 0x7b80;  // bits of 2^120

    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second) {
        // Above each byte, its sign eight times.
        first = place(ptx::permute_bytes(word, 0, 0x9180)), second = place(ptx::permute_bytes(word, 0, 0xb3a2));
    }

private:
    static DG_DEVICE uint32_t place(uint32_t halves) { return halves << 4 & in_both(0x87f0); }
};

/// 2^-126 of the value, of the two codes of a byte.
struct PairOfE2m1 {
    static constexpr uint32_t kUndone = 0x7e80;  // bits of 2^126

    static DG_DEVICE uint32_t run(uint32_t byte) {
        return (byte & 0x07) << 6 | (byte & 0x08) << 12 | (byte & 0x70) << 18 | (byte & 0x80) << 24;
    }
};

/// BF16's bits of a UE8M0 exponent, in both halves: 0xff is NaN, 0 the subnormal 2^-127.
DG_DEVICE uint32_t exponent_as_bf16(uint32_t exponent) {
    return in_both(exponent == 0xff ? 0x7fff : exponent == 0 ? 0x0040 : exponent << 7);
}

/// Whether one of four E4M3 codes is NaN, which no conversion keeps.
DG_DEVICE bool has_nan(uint32_t word) { return __vcmpeq4(word & 0x7f7f7f7f, 0x7f7f7f7f) != 0; }

/// kCodes codes that follow each other and share an exponent, if they have any -> words of what is multiplied.
template <Element kElement, Element kMultiplied, int32_t kCodes>
struct ConvertCodes {
    static constexpr int32_t kWords = kCodes * bits(kElement) / 32, kConverted = kCodes * bits(kMultiplied) / 32;
    static constexpr bool kExponents = kMultiplied == Element::bf16;

    /// Whether one of them is NaN, which the result does not show.
    static DG_DEVICE bool run(const uint32_t (&codes)[kWords], uint32_t (&converted)[kConverted], uint32_t exponent) {
        bool nan = false;
        if constexpr (kElement == kMultiplied) {
#pragma unroll
            for (int32_t i = 0; i < kWords; ++i) converted[i] = codes[i];
        } else if constexpr (kElement == Element::e4m3) {
#pragma unroll
            for (int32_t i = 0; i < kWords; ++i) {
                Convert<Element::e4m3, kMultiplied>::run(codes[i], converted[2 * i], converted[2 * i + 1]);
                nan |= has_nan(codes[i]);
            }
        } else {
#pragma unroll
            for (int32_t i = 0; i < kConverted; ++i) converted[i] = PairOfE2m1::run(codes[i / 4] >> i % 4 * 8);
        }
        if constexpr (kExponents) scale(converted, exponent_as_bf16(exponent));
        return nan;
    }

private:
    /// First to their values, then by the exponent: in one step neither would be exact.
    static DG_DEVICE void scale(uint32_t (&converted)[kConverted], uint32_t by) {
        constexpr uint32_t kUndone =
            in_both(kElement == Element::e4m3 ? Convert<Element::e4m3, Element::bf16>::kUndone : PairOfE2m1::kUndone);
#pragma unroll
        for (int32_t i = 0; i < kConverted; ++i)
            converted[i] = ptx::multiply_bf16x2(ptx::multiply_bf16x2(converted[i], kUndone), by);
    }
};

}  // namespace deep_gemm
