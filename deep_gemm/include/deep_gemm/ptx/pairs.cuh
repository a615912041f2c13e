// Arithmetic of two 16-bit floats in a register, subnormal numbers included.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// fma.rn.bf16x2
DG_DEVICE uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}

/// fma.rn.f16x2
DG_DEVICE uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t sum;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}

/// mul.rn.bf16x2, which begins with sm_90; before it, fma.rn.bf16x2 that adds -0, and no product changes by that.
DG_DEVICE uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
#if __CUDA_ARCH__ >= 900
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
#else
    return fma_bf16x2(a, b, 0x80008000);
#endif
}

/// min.bf16x2
DG_DEVICE uint32_t min_bf16x2(uint32_t a, uint32_t b) {
    uint32_t least;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
    return least;
}

/// mul.rn.f16x2
DG_DEVICE uint32_t multiply_f16x2(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

}  // namespace deep_gemm::ptx
