// How threads divide what they convert.
#pragma once

#include <deep_gemm/convert/logits.cuh>
#include <deep_gemm/logits/config.cuh>

namespace deep_gemm {

/// How a head, or a key, lies among four lanes: each has a quarter of D, which is what it hands over to all products
/// along K. Operands agree in that order, so no sum needs another.
template <Constant<LogitsConfig> c>
struct Quarter {
    static constexpr int32_t kCodes = c.d / 4, kBytes = bytes_of(c.element, kCodes);
    using Conversion = ConvertCodes<c.element, c.multiplied, kCodes>;
    static constexpr int32_t kWords = Conversion::kWords, kConverted = Conversion::kConverted;
    static constexpr int32_t kUnits = ceil_div(kConverted, 4);  // of 16 bytes
    static constexpr int32_t kUnitBytes = kConverted < 4 ? kConverted * 4 : 16;

    /// Of a unit of lane `part` of four.
    static DG_DEVICE int32_t unit_offset(int32_t unit, int32_t part) { return (unit * 4 + part) * kUnitBytes; }

    /// The lane's part of four of a head or key that lies at `first`.
    static DG_DEVICE void load(uint32_t (&codes)[kWords], const uint8_t* first, int32_t part) {
        const uint8_t* const address = first + part * kBytes;
        if constexpr (kWords % 4 == 0) {
#pragma unroll
            for (int32_t i = 0; i < kWords / 4; ++i) {
                const uint4 four = reinterpret_cast<const uint4*>(address)[i];
                codes[4 * i] = four.x, codes[4 * i + 1] = four.y, codes[4 * i + 2] = four.z, codes[4 * i + 3] = four.w;
            }
        } else {
            static_assert(kWords == 2);
            const uint2 two = *reinterpret_cast<const uint2*>(address);
            codes[0] = two.x, codes[1] = two.y;
        }
    }

    static DG_DEVICE uint32_t exponent(uint32_t word, int32_t part) {
        return word >> part * kCodes / kMxGroup * 8 & 0xff;
    }
};

/// Where the instruction scales 32 of K alike, its K is a group: a lane has a quarter of each.
template <Constant<LogitsConfig> c>
    requires(c.exponents_in_instruction())
struct Quarter<c> {
    static constexpr int32_t kGroups = c.d / kMxGroup, kGroupBytes = bytes_of(c.element, kMxGroup),
                             kGroupWords = kGroupBytes / 16;  // of a lane
    static constexpr int32_t kWords = kGroups * kGroupWords, kConverted = kWords;
    using Conversion = ConvertCodes<c.element, c.multiplied, c.d / 4>;
    static constexpr int32_t kUnits = ceil_div(kConverted, 4);  // of 16 bytes
    static constexpr int32_t kUnitBytes = kConverted < 4 ? kConverted * 4 : 16;

    /// Of a unit of lane `part` of four.
    static DG_DEVICE int32_t unit_offset(int32_t unit, int32_t part) { return (unit * 4 + part) * kUnitBytes; }

    /// The lane's part of four of each group of a head or key that lies at `first`.
    static DG_DEVICE void load(uint32_t (&codes)[kWords], const uint8_t* first, int32_t part) {
        const uint8_t* const address = first + part * kGroupWords * 4;
#pragma unroll
        for (int32_t group = 0; group < kGroups; ++group) {
            if constexpr (kGroupWords == 2) {
                const uint2 two = *reinterpret_cast<const uint2*>(address + group * kGroupBytes);
                codes[2 * group] = two.x, codes[2 * group + 1] = two.y;
            } else {
                static_assert(kGroupWords == 1);
                codes[group] = *reinterpret_cast<const uint32_t*>(address + group * kGroupBytes);
            }
        }
    }

    static DG_DEVICE uint32_t exponent(uint32_t, int32_t) { return 0; }  // none enters a conversion
};

}  // namespace deep_gemm
