// Between FP32 and the 16-bit floats, which are kept as bits: uint16_t, or two in a uint32_t; and bytes of words.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// cvt.rn.bf16x2.f32: `low` goes to the low half.
DG_DEVICE uint32_t pack_bf16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/// cvt.rn.f16x2.f32: `low` goes to the low half; beyond 65504 it becomes infinite.
DG_DEVICE uint32_t pack_f16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/// cvt.rn.f16.f32
DG_DEVICE uint16_t to_f16(float value) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

/// cvt.rn.satfinite.e4m3x2.f32: `low` goes to the low byte; beyond 448 it becomes 448, and NaN 0x7f. Not before sm_89,
/// where the same is done on the bits.
DG_DEVICE uint16_t pack_e4m3(float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
#else
    const auto code = [](float value) {
        constexpr uint32_t kDropped = 20;     // bits of FP32's mantissa beyond three
        constexpr uint32_t kMinNormal = 121;  // FP32's exponent of 2^-6
        const uint32_t bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
        uint32_t rounded;
        if (magnitude > 0x7f800000u)
            return 0x7fu;
        else if (magnitude < kMinNormal << 23)  // added to 2^14, whose last bit is 2^-9: rounded as FP32 does
            rounded = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), 16384.0f)) & 0xfu;
        else
            rounded = (min(magnitude, 0x43e00000u) + 0x7ffffu + (magnitude >> kDropped & 1) >> kDropped) -
                      (kMinNormal - 1 << 23 - kDropped);
        return rounded | (bits >> 31 << 7);
    };
    return static_cast<uint16_t>(code(low) | code(high) << 8);
#endif
}

/// The bits of an integer within 2^22, its lowest byte first.
DG_DEVICE uint32_t integer_bits(float integer) { return __float_as_uint(__fadd_rn(integer, 12582912.0f)); }

/// The nearest integers within -127 and 127, halves to the even one; `low` goes to the low byte.
DG_DEVICE uint16_t pack_s8(float low, float high) {
    const auto code = [](float value) { return integer_bits(fminf(fmaxf(value, -127.0f), 127.0f)) & 0xffu; };
    return static_cast<uint16_t>(code(low) | code(high) << 8);
}

/// prmt.b32: four bytes of eight, as four nibbles say, each of which is 0 to 7; or 8 more for eight times the sign.
DG_DEVICE uint32_t permute_bytes(uint32_t lower, uint32_t upper, uint32_t nibbles) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(lower), "r"(upper), "r"(nibbles));
    return bytes;
}

/// cvt.f32.f16
DG_DEVICE float from_f16(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

}  // namespace deep_gemm::ptx
