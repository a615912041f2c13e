// Weights of few bits to what the tensor cores multiply, in registers.
//
// To 8 bits: a word holds eight, four for one register of wgmma's A, "first", and four for the next one, "second". To
// 16 bits: it holds those of a step of K, all four registers of it. They become multiples of their values, by a factor
// that packing has taken out of their scales (deep_gemm/weights).
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/ptx/bytes.cuh>
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

/// The value, beside s4i: of four words, which are for 64 of K, each of their nibbles is in place. The lower ones of a
/// byte are the first row's.
template <>
struct Convert<Element::s4, Element::s4i> {
    static constexpr int32_t kOf16 = 16;  // sums are so much less than scales and sums of rows are for

    static DG_DEVICE void run(uint32_t word, uint32_t next_word, uint32_t& first, uint32_t& second) {
        constexpr uint32_t kLower = 0x0f0f0f0f;
        first = (word & kLower) | (next_word << 4 & ~kLower);
        second = (word >> 4 & kLower) | (next_word & ~kLower);
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
    /// Of 16 times the values, in signed bytes.
    static DG_DEVICE uint32_t convert(uint32_t bytes) {
        return ptx::absolute_differences(bytes, 0) >> 4 | (bytes & 0x80808080);
    }
    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second) {
        constexpr uint32_t kUpper = 0xf0f0f0f0;
        first = convert(word << 4 & kUpper);
        second = convert(word & kUpper);
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
/// more than its value, or another zero point, of which 2^-9 is subtracted: that of the row which the first and third
/// register share, and of the other two. Four bits anywhere among a half's lowest eight are, of BF16 and of FP16, a
/// multiple of the least subnormal number (those of BF16 run on into the least normal ones): one AND and one FMA for
/// two weights.
template <>
struct Convert<Element::s4b, Element::bf16> {
    static constexpr uint32_t kMinusMiddle = in_both(0xbc80);  // 2^-9 of -8
    static constexpr uint32_t kFactors = 0x7b807d80;           // of both rows: 2^124 below, 2^120 above

    static DG_DEVICE void run(uint32_t word, uint32_t (&step)[4], uint32_t zero = kMinusMiddle,
                              uint32_t next_zero = kMinusMiddle, uint32_t factor = in_both(kFactors & 0xffff),
                              uint32_t next_factor = in_both(kFactors >> 16)) {
        const uint32_t upper = word >> 8;
        step[0] = ptx::fma_bf16x2(word & in_both(0x0f), factor, zero);
        step[1] = ptx::fma_bf16x2(word & in_both(0xf0), next_factor, next_zero);
        step[2] = ptx::fma_bf16x2(upper & in_both(0x0f), factor, zero);
        step[3] = ptx::fma_bf16x2(upper & in_both(0xf0), next_factor, next_zero);
    }
};
template <>
struct Convert<Element::s4b, Element::fp16> {
    static constexpr uint32_t kMinusMiddle = in_both(0xa400);

    static DG_DEVICE void run(uint32_t word, uint32_t (&step)[4], uint32_t zero = kMinusMiddle,
                              uint32_t next_zero = kMinusMiddle) {
        constexpr uint32_t kTwo15 = in_both(0x7800), kTwo11 = in_both(0x6800);
        const uint32_t upper = word >> 8;
        step[0] = ptx::fma_f16x2(word & in_both(0x0f), kTwo15, zero);
        step[1] = ptx::fma_f16x2(word & in_both(0xf0), kTwo11, next_zero);
        step[2] = ptx::fma_f16x2(upper & in_both(0x0f), kTwo15, zero);
        step[3] = ptx::fma_f16x2(upper & in_both(0xf0), kTwo11, next_zero);
    }
};

/// The same of words of zero points (deep_gemm/weights/zeros.py): BF16 in the lower half, FP16 in the upper one.
template <Element kTo>
struct WordOfZeros {
    static DG_DEVICE uint32_t zeros(uint32_t word) {
        return __byte_perm(word, word, kTo == Element::bf16 ? 0x1010 : 0x3232);
    }
};
template <>
struct Convert<Element::u4, Element::bf16> : Convert<Element::s4b, Element::bf16>, WordOfZeros<Element::bf16> {};
template <>
struct Convert<Element::u4, Element::fp16> : Convert<Element::s4b, Element::fp16>, WordOfZeros<Element::fp16> {};

/// 2^-9 of the value, or of the code less another zero point. Each half of a word has the first register's code in its
/// lower byte, the second's above. A byte is a multiple of the least subnormal number, as four bits are.
template <>
struct Convert<Element::s8b, Element::bf16> {
    static constexpr uint32_t kMinusMiddle = in_both(0xbe80);
    static constexpr uint32_t kFactors = in_both(0x7d80);  // 2^124

    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second, uint32_t zero = kMinusMiddle,
                              uint32_t next_zero = kMinusMiddle, uint32_t factor = kFactors,
                              uint32_t next_factor = kFactors) {
        first = ptx::fma_bf16x2(word & in_both(0xff), factor, zero);
        second = ptx::fma_bf16x2(word >> 8 & in_both(0xff), next_factor, next_zero);
    }
};
template <>
struct Convert<Element::s8b, Element::fp16> {
    static constexpr uint32_t kMinusMiddle = in_both(0xb400);

    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second, uint32_t zero = kMinusMiddle,
                              uint32_t next_zero = kMinusMiddle) {
        constexpr uint32_t kTwo15 = in_both(0x7800);
        first = ptx::fma_f16x2(word & in_both(0xff), kTwo15, zero);
        second = ptx::fma_f16x2(word >> 8 & in_both(0xff), kTwo15, next_zero);
    }
};
template <>
struct Convert<Element::u8, Element::bf16> : Convert<Element::s8b, Element::bf16>, WordOfZeros<Element::bf16> {};
template <>
struct Convert<Element::u8, Element::fp16> : Convert<Element::s8b, Element::fp16>, WordOfZeros<Element::fp16> {};

/// E2M1 times `scale` of its row, which the first and third register share, and the other two. Exponent and mantissa
/// are put in place as they are, the least exponent subnormal in all three formats, and a multiplication makes up for
/// the bias: scales are 2^126 or 2^14 times what is multiplied by.
template <>
struct Convert<Element::e2m1, Element::bf16> {
    static constexpr uint32_t kOne = in_both(0x7e80);  // a scale of 1
    static constexpr uint32_t kFactors = kOne;

    static DG_DEVICE void run(uint32_t word, uint32_t (&step)[4], uint32_t scale, uint32_t next_scale) {
        constexpr uint32_t kCode = in_both(0x81c0);
        step[0] = ptx::multiply_bf16x2(word & kCode, scale);
        step[1] = ptx::multiply_bf16x2(word << 3 & kCode, next_scale);
        step[2] = ptx::multiply_bf16x2(word << 6 & kCode, scale);
        const uint32_t last =
            (word << 5 & in_both(0x8000)) | (word >> 6 & in_both(0x0180)) | (word >> 5 & in_both(0x0040));
        step[3] = ptx::multiply_bf16x2(last, next_scale);
    }

    /// Two scales as they are stored, in the upper bytes of both halves, to 2^112 times their values: what is
    /// multiplied is 2^-14 of them.
    static DG_DEVICE uint32_t scales(uint32_t upper_bytes) {
        return (upper_bytes >> 4 & in_both(0x0ff0)) | in_both(0x7000);
    }
};
template <>
struct Convert<Element::e2m1, Element::fp16> {
    static constexpr uint32_t kOne = in_both(0x7400);

    static DG_DEVICE void run(uint32_t word, uint32_t (&step)[4], uint32_t scale, uint32_t next_scale) {
        constexpr uint32_t kSign = in_both(0x8000), kRest = in_both(0x0e00);
        const uint32_t by3 = word << 3, by6 = word << 6;
        step[0] = ptx::multiply_f16x2((word & kSign) | (by3 & kRest), scale);
        step[1] = ptx::multiply_f16x2((by3 & kSign) | (by6 & kRest), next_scale);
        step[2] = ptx::multiply_f16x2((by6 & kSign) | (word << 9 & kRest), scale);
        const uint32_t last = (word << 5 & kSign) | (word >> 3 & in_both(0x0c00)) | (word >> 2 & in_both(0x0200));
        step[3] = ptx::multiply_f16x2(last, next_scale);
    }

    /// To their values, of which likewise 2^-14 is multiplied.
    static DG_DEVICE uint32_t scales(uint32_t upper_bytes) { return upper_bytes >> 1 & in_both(0x7f80); }
};

/// 2^-8 of the value. Of each half of a word, the first register's code is where BF16 has its sign, exponent and
/// mantissa, and the second's is in the other bits.
template <>
struct Convert<Element::e4m3p, Element::bf16> {
    static constexpr uint32_t kFactors = in_both(0x7780);  // 2^112: biases differ by 120

    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second, uint32_t factor = kFactors,
                              uint32_t next_factor = kFactors) {
        first = ptx::multiply_bf16x2(word & in_both(0x87f0), factor);
        second = ptx::multiply_bf16x2((word << 4 & in_both(0x80f0)) | (word >> 4 & in_both(0x0700)), next_factor);
    }
};
template <>
struct Convert<Element::e4m3p, Element::fp16> {
    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second) {
        constexpr uint32_t kSign = in_both(0x8000);
        first = (word & kSign) | (word << 3 & in_both(0x3f80));
        second = (word << 4 & kSign) | (word << 7 & in_both(0x0780)) | (word >> 1 & in_both(0x3800));
    }
};

}  // namespace deep_gemm
