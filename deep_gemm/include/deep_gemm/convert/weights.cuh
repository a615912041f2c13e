// Weights of four bits to what the tensor cores multiply, in registers.
//
// To 8 bits: a word holds eight, four for one register of wgmma's A, "first", and four for the next one, "second". To
// 16 bits: it holds those of a step of K, all four registers of it. They become multiples of their values, by a factor
// that packing has taken out of their scales (deep_gemm/weights).
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/ptx/pairs.cuh>

namespace deep_gemm {

template <Element kFrom, Element kTo>
struct Convert;

/// 16 times the value: the nibble stays in the upper half of its byte.
template <>
struct Convert<Element::s4, Element::s8> {
    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second) {
        constexpr uint32_t kUpper = 0xf0f0f0f0;
        first = word << 4 & kUpper;
        second = word & kUpper;
    }
};

/// 2^-9 of the value: s0000mmm is a subnormal E4M3. The second magnitudes stand a byte below their signs, so that a
/// rotation brings both into place.
template <>
struct Convert<Element::s4m, Element::e4m3> {
    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second) {
        constexpr uint32_t kSignAndMagnitude = 0x87878787;
        first = word & kSignAndMagnitude;
        second = __funnelshift_l(word, word, 4) & kSignAndMagnitude;
    }
};

/// 2^-9 of the value, -8 included: s000mmmm, of which the largest is the least normal E4M3.
template <>
struct Convert<Element::s4, Element::e4m3> {
    static DG_DEVICE uint32_t convert(uint32_t nibbles) {
        const uint32_t signs = nibbles & 0x08080808, ones = signs >> 3;
        const uint32_t negative = signs | (signs - ones);  // all four bits
        return ((nibbles ^ negative) + ones) | signs << 4;
    }
    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second) {
        constexpr uint32_t kLower = 0x0f0f0f0f;
        first = convert(word & kLower);
        second = convert(word >> 4 & kLower);
    }
};

/// 2^-6 of the value: E4M3 has the same mantissa bit and exponents six apart, subnormals too.
template <>
struct Convert<Element::e2m1, Element::e4m3> {
    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second) {
        constexpr uint32_t kSign = 0x80808080, kExponentAndMantissa = 0x1c1c1c1c;
        first = (word << 4 & kSign) | (word << 2 & kExponentAndMantissa);
        second = (word & kSign) | (word >> 2 & kExponentAndMantissa);
    }
};

/// Both halves of a register.
constexpr uint32_t in_both(uint32_t half) { return half << 16 | half; }

/// 2^-9 of the value. Each half of the word has a code for each register, the first in its lowest bits; a code is 8
/// more than its value. Four bits anywhere among a half's lowest eight are, of BF16 and of FP16, a multiple of the
/// least subnormal number (those of BF16 run on into the least normal ones): one AND and one FMA for two weights.
template <>
struct Convert<Element::s4b, Element::bf16> {
    static DG_DEVICE void run(uint32_t word, uint32_t (&step)[4]) {
        constexpr uint32_t kTwo124 = in_both(0x7d80), kTwo120 = in_both(0x7b80),
                           kMinus8 = in_both(0xbc80);  // 2^-9 of it
        const uint32_t upper = word >> 8;
        step[0] = ptx::fma_bf16x2(word & in_both(0x0f), kTwo124, kMinus8);
        step[1] = ptx::fma_bf16x2(word & in_both(0xf0), kTwo120, kMinus8);
        step[2] = ptx::fma_bf16x2(upper & in_both(0x0f), kTwo124, kMinus8);
        step[3] = ptx::fma_bf16x2(upper & in_both(0xf0), kTwo120, kMinus8);
    }
};
template <>
struct Convert<Element::s4b, Element::fp16> {
    static DG_DEVICE void run(uint32_t word, uint32_t (&step)[4]) {
        constexpr uint32_t kTwo15 = in_both(0x7800), kTwo11 = in_both(0x6800), kMinus8 = in_both(0xa400);  // 2^-9 of it
        const uint32_t upper = word >> 8;
        step[0] = ptx::fma_f16x2(word & in_both(0x0f), kTwo15, kMinus8);
        step[1] = ptx::fma_f16x2(word & in_both(0xf0), kTwo11, kMinus8);
        step[2] = ptx::fma_f16x2(upper & in_both(0x0f), kTwo15, kMinus8);
        step[3] = ptx::fma_f16x2(upper & in_both(0xf0), kTwo11, kMinus8);
    }
};

}  // namespace deep_gemm
