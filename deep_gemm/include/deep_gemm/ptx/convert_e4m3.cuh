// FP32 to E4M3, where the chip has an instruction for it.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr bool kHasE4m3 = true;
#else
inline constexpr bool kHasE4m3 = false;
#endif

/// cvt.rn.satfinite.e4m3x2.f32: `low` goes to the low byte.
DG_DEVICE uint32_t pack_e4m3([[maybe_unused]] float low, [[maybe_unused]] float high) {
    uint16_t packed = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
#endif
    return packed;
}

}  // namespace deep_gemm::ptx
