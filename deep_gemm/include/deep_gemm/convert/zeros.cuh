// Unsigned codes of four bits, of which a zero point is subtracted, to what the tensor cores multiply, in registers.
//
// A word in memory for each row and group of K says how (deep_gemm/weights/zeros.py makes it).
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/ptx/bytes.cuh>

namespace deep_gemm {

/// Of a word of eight codes, those of the first register, each in a byte; of the word moved down by 4, the second's.
DG_DEVICE uint32_t lower_codes(uint32_t word) { return word & 0x0f0f0f0f; }

/// What becomes of a row's codes.
template <Element kTo>
struct SubtractZero;

/// factor * code - offset, within s8: 128 more is within a byte, so that nothing is carried from one to another. The
/// word's upper half is the factor, its lower one 128 - offset.
template <>
struct SubtractZero<Element::s8> {
    uint32_t factor, start;

    DG_DEVICE explicit SubtractZero(uint32_t word)
        : factor(static_cast<int32_t>(word) >> 16),
          start(static_cast<uint32_t>(static_cast<int16_t>(word)) * 0x01010101) {}
    DG_DEVICE uint32_t run(uint32_t codes) const { return (codes * factor + start) ^ 0x80808080; }
};

/// 2^-9 of code - zero, within -16..16: the magnitude is a subnormal E4M3, or the first normal ones. The word has four
/// times the zero point, in signed bytes; below 0 it makes carries, where no sign is asked for.
template <>
struct SubtractZero<Element::e4m3> {
    uint32_t zeros;

    DG_DEVICE explicit SubtractZero(uint32_t word) : zeros(word) {}
    DG_DEVICE uint32_t run(uint32_t codes) const {
        const uint32_t signs = zeros + 0x7f7f7f7f - codes;  // bit 7 of each byte: the code is less
        return ptx::absolute_differences(codes, zeros) | (signs & 0x80808080);
    }
};

}  // namespace deep_gemm
