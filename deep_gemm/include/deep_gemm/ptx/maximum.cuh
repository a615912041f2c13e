// Maxima and minima of FP32 values.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// max.NaN.f32: NaN where one of them is.
DG_DEVICE float max_or_nan(float x, float y) {
    float largest;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(x), "f"(y));
    return largest;
}

/// min.NaN.f32: likewise.
DG_DEVICE float min_or_nan(float x, float y) {
    float least;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(x), "f"(y));
    return least;
}

}  // namespace deep_gemm::ptx
