// Weights of four bits to what the tensor cores multiply, in registers.
//
// A word holds eight: four for one register of wgmma's A, "first", and four for the next one, "second". They become
// multiples of their values, by a factor that packing has taken out of their scales (deep_gemm/weights).
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/ptx/bytes.cuh>

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

}  // namespace deep_gemm
