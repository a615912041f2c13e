// Maxima and minima.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm::ptx {

/// max.NaN.f32: NaN where one of them is.
DG_DEVICE float max_or_nan(float x, float y) {
    float largest;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(x), "f"(y));
    return largest;
}

/// max.NaN.xorsign.abs: of two pairs of 16-bit floats the larger magnitudes, with some sign; NaN where one of them is.
/// Not before sm_86, where signs are cleared first.
template <Element kElement>
DG_DEVICE uint32_t larger_magnitudes(uint32_t x, uint32_t y) {
    static_assert(kElement == Element::bf16 || kElement == Element::fp16);
    uint32_t largest;
#if __CUDA_ARCH__ >= 860
    if constexpr (kElement == Element::bf16)
        asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(largest) : "r"(x), "r"(y));
    else
        asm("max.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(largest) : "r"(x), "r"(y));
#else
    constexpr uint32_t kMagnitudes = 0x7fff7fffu;
    if constexpr (kElement == Element::bf16)
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(largest) : "r"(x & kMagnitudes), "r"(y & kMagnitudes));
    else
        asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(largest) : "r"(x & kMagnitudes), "r"(y & kMagnitudes));
#endif
    return largest;
}

/// min.NaN.f32: likewise.
DG_DEVICE float min_or_nan(float x, float y) {
    float least;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(x), "f"(y));
    return least;
}

}  // namespace deep_gemm::ptx
