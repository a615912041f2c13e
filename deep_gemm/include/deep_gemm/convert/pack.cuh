// Codes of four bits into the words that convert/weights.cuh converts: a row for each order.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

/// Makes the word that a thread converts for `row` and `row` + 8 and 16 of K from `k` on, of which its lane's `quad`
/// (lane % 4) says which are its own. `codes(row, k)` are four neighbours along K, in two's complement in the lower
/// halves of four bytes.
template <Element kElement>
struct Pack;

/// First codes in the lower halves of bytes, second ones in the upper halves.
template <>
struct Pack<Element::s4> {
    template <typename Codes>
    static DG_DEVICE uint32_t run(const Codes& codes, int32_t row, int32_t k, int32_t quad) {
        return codes(row, k + 4 * quad) | codes(row + 8, k + 4 * quad) << 4;
    }
};

template <>
struct Pack<Element::e2m1> : Pack<Element::s4> {};

/// Sign and magnitude, the second magnitudes a byte below their signs. It has no -8: what it makes of one is of no use.
template <>
struct Pack<Element::s4m> {
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

/// Not 0 where one of four codes is -8.
DG_DEVICE uint32_t minus_eights(uint32_t codes) {
    constexpr uint32_t kSigns = 0x08080808, kOthers = 0x07070707;
    return codes & kSigns & ~((codes & kOthers) + kOthers);
}

}  // namespace deep_gemm
