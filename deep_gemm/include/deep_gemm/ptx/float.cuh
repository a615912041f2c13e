// FP32 arithmetic that CUDA has no function for.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// rcp.approx.ftz.f32: within 1 ulp.
DG_DEVICE float reciprocal_approx(float value) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(value));
    return reciprocal;
}

/// max.NaN.f32: NaN where one of them is.
DG_DEVICE float max_nan(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

/// min.NaN.f32
DG_DEVICE float min_nan(float a, float b) {
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
}

}  // namespace deep_gemm::ptx
