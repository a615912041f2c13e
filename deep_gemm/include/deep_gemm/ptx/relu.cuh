// The rectifier of FP32 values.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// max.NaN.f32 with 0: NaN stays what it is.
DG_DEVICE float relu(float value) {
    float positive;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(value));
    return positive;
}

}  // namespace deep_gemm::ptx
