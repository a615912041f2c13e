// Reciprocals of FP32 numbers.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// rcp.approx.ftz.f32: within 1 ulp.
DG_DEVICE float reciprocal_approx(float value) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(value));
    return reciprocal;
}

}  // namespace deep_gemm::ptx
