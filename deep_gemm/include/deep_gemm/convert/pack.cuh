// Codes into the words that convert/weights.cuh converts: a row for each order.
#pragma once

#include <deep_gemm/convert/weights.cuh>

namespace deep_gemm {

/// Makes the word that a thread converts for `row` and `row` + 8 and for K from `k` on, 16 of it, or 8 where codes have
/// 8 bits; its lane's `quad` (lane % 4) says which are its own. `codes(row, k)` are four neighbours along K, a byte
/// each; of four bits in two's complement in the bytes' lower halves. `kWide`: beside activations of 16 bits.
template <Element kElement, bool kWide>
struct Pack;

/// First codes in the lower halves of bytes, second ones in the upper halves.
template <>
struct Pack<Element::s4, false> {
    template <typename Codes>
    static DG_DEVICE uint32_t run(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
        return codes(row, k + 4 * quad) | codes(row + 8, k + 4 * quad) << 4;
    }
};

template <>
struct Pack<Element::e2m1, false> : Pack<Element::s4, false> {};

/// What eight codes in two's complement and the unsigned ones of values that are 8 more differ by.
inline constexpr uint32_t kUnsignedBits = 0x88888888;

template <>
struct Pack<Element::u4, false> {
    template <typename Codes>
    static DG_DEVICE uint32_t run(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
        return Pack<Element::s4, false>::run(codes, row, k, quad) ^ kUnsignedBits;
    }
};

/// Sign and magnitude, the second magnitudes a byte below their signs. It has no -8: what it makes of one is of no use.
template <>
struct Pack<Element::s4m, false> {
    static constexpr uint32_t kSigns = 0x08080808, kMagnitudes = 0x07070707;

    static DG_DEVICE uint32_t magnitudes(uint32_t codes) {
        const uint32_t signs = codes & kSigns, ones = signs >> 3;
        const uint32_t negative = signs | (signs - ones);  // all four bits
        return ((codes ^ negative) + ones) & kMagnitudes;
    }
    template <typename Codes>
    static DG_DEVICE uint32_t run(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
        const uint32_t first = codes(row, k + 4 * quad), second = codes(row + 8, k + 4 * quad);
        const uint32_t above = magnitudes(second);
        return (first & kSigns) << 4 | magnitudes(first) | (second & kSigns) | __funnelshift_r(above, above, 4);
    }
};

/// Magnitudes in the nibbles, those of first codes in the lower half; signs as of sign and magnitude.
template <>
struct Pack<Element::e2m1x, false> {
    template <typename Codes>
    static DG_DEVICE uint32_t run(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
        constexpr uint32_t kSigns = 0x08080808, kMagnitudes = 0x07070707;
        const uint32_t first = codes(row, k + 4 * quad), second = codes(row + 8, k + 4 * quad);
        const uint32_t first_magnitudes = first & kMagnitudes, second_magnitudes = second & kMagnitudes;
        return __byte_perm(first_magnitudes | first_magnitudes >> 4, second_magnitudes | second_magnitudes >> 4,
                           0x6420) |
               (first & kSigns) << 4 | (second & kSigns);
    }
};

/// Codes of the lane's two neighbours along K, each in a half of a word.
template <typename Codes>
DG_DEVICE uint32_t two_codes(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
    return __byte_perm(codes(row, k + quad / 2 * 4), 0, quad % 2 == 0 ? 0x4140 : 0x4342);
}

/// Codes of a step of 16 of K as wgmma's four registers want them: rows alternate, then comes the other half of K.
template <typename Codes>
struct StepCodes {
    uint32_t of[4];

    DG_DEVICE StepCodes(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) of[i] = two_codes(codes, row + i % 2 * 8, k + i / 2 * 8, quad);
    }
};

template <>
struct Pack<Element::s4b, true> {
    template <typename Codes>
    static DG_DEVICE uint32_t run(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
        const StepCodes<Codes> step(codes, row, k, quad);
        return (step.of[0] | step.of[1] << 4 | step.of[2] << 8 | step.of[3] << 12) ^ kUnsignedBits;
    }
};

template <>
struct Pack<Element::u4, true> : Pack<Element::s4b, true> {};

/// Where each register's code goes: deep_gemm/weights/packings.py has the places of all bits.
template <>
struct Pack<Element::e2m1, true> {
    template <typename Codes>
    static DG_DEVICE uint32_t run(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
        constexpr uint32_t kSign = in_both(8), kMagnitude = in_both(7), kUpper = in_both(6), kLowest = in_both(1);
        const StepCodes<Codes> step(codes, row, k, quad);
        return (step.of[0] & kMagnitude) << 6 | (step.of[0] & kSign) << 12 |  //
               (step.of[1] & kMagnitude) << 3 | (step.of[1] & kSign) << 9 |   //
               (step.of[2] & kMagnitude) | (step.of[2] & kSign) << 6 |        //
               (step.of[3] & kLowest) << 11 | (step.of[3] & kUpper) << 12 | (step.of[3] & kSign) << 7;
    }
};

/// A word for two registers, which are 8 of K.
template <>
struct Pack<Element::e4m3p, true> {
    template <typename Codes>
    static DG_DEVICE uint32_t run(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
        constexpr uint32_t kSign = in_both(0x80), kRest = in_both(0x7f), kUpper = in_both(0x70), kLower = in_both(0x0f);
        const uint32_t first = two_codes(codes, row, k, quad), second = two_codes(codes, row + 8, k, quad);
        return (first & kRest) << 4 | (first & kSign) << 8 |  //
               (second & kLower) | (second & kUpper) << 8 | (second & kSign) << 4;
    }
};

/// Bytes in two's complement, as what is 128 more: the second register's code above the first's.
template <>
struct Pack<Element::s8b, true> {
    template <typename Codes>
    static DG_DEVICE uint32_t run(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
        constexpr uint32_t kSigns = 0x80808080;
        return (two_codes(codes, row, k, quad) | two_codes(codes, row + 8, k, quad) << 8) ^ kSigns;
    }
};

template <>
struct Pack<Element::u8, true> : Pack<Element::s8b, true> {};

/// Not 0 where one of four codes is -8.
DG_DEVICE uint32_t minus_eights(uint32_t codes) {
    constexpr uint32_t kSigns = 0x08080808, kOthers = 0x07070707;
    return codes & kSigns & ~((codes & kOthers) + kOthers);
}

}  // namespace deep_gemm
