// E2M1 whose exponents are multiplied in by the conversion, so that 128 of K have one scale (Element::e2m1x).
//
// That scale is a power of two, and the lower half of its mantissa holds a field for each 32 of K: where the exponent
// of E4M3 begins for them. A row's codes are then looked up in a table of eight bytes.
#pragma once

#include <deep_gemm/ptx/convert.cuh>

namespace deep_gemm {

inline constexpr int32_t kExponentFieldBits = 4;
inline constexpr uint32_t kScaleWithoutFields = 0xff800000;

/// E4M3 of the magnitudes 0, 0.5, 1, 1.5 and 2, 3, 4, 6: their bytes from 0.5 on are 8 times the field and more.
struct MagnitudeTable {
    uint32_t lower, upper;

    DG_DEVICE MagnitudeTable(uint32_t scale, int32_t group) {
        constexpr uint32_t kField = (1 << kExponentFieldBits) - 1;
        const uint32_t field = scale >> group * kExponentFieldBits & kField;
        lower = field * 0x08080800 + 0x0c080000, upper = field * 0x08080808 + 0x1c181410;
    }

    /// Of the four nibbles in the lower half.
    DG_DEVICE uint32_t find(uint32_t nibbles) const { return ptx::permute_bytes(lower, upper, nibbles); }
};

/// Eight codes: magnitudes in the nibbles, of the first row in the lower half; signs of that row in bits 7, 15, 23 and
/// 31, of the second one in bits 3, 11, 19 and 27.
DG_DEVICE void convert_with_exponents(uint32_t word, const MagnitudeTable& first_row, const MagnitudeTable& second_row,
                                      uint32_t& first, uint32_t& second) {
    constexpr uint32_t kMagnitudes = 0x77777777, kSigns = 0x80808080;
    const uint32_t magnitudes = word & kMagnitudes;
    first = first_row.find(magnitudes) | (word & kSigns);
    second = second_row.find(magnitudes >> 16) | (word << 4 & kSigns);
}

}  // namespace deep_gemm
