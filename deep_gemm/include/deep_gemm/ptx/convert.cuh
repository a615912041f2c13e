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
