// Arithmetic of two FP32 values in one instruction (SM100).
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// mul.rn.f32x2
DG_DEVICE float2 multiply_x2(float2 a, float2 b) {
    float2 product;
    asm("{\n .reg .b64 a, b, product;\n mov.b64 a, {%2, %3};\n mov.b64 b, {%4, %5};\n"
        " mul.rn.f32x2 product, a, b;\n mov.b64 {%0, %1}, product;\n}\n"
        : "=f"(product.x), "=f"(product.y)
        : "f"(a.x), "f"(a.y), "f"(b.x), "f"(b.y));
    return product;
}

/// fma.rn.f32x2
DG_DEVICE float2 fma_x2(float2 a, float2 b, float2 c) {
    float2 sum;
    asm("{\n .reg .b64 a, b, c, sum;\n mov.b64 a, {%2, %3};\n mov.b64 b, {%4, %5};\n mov.b64 c, {%6, %7};\n"
        " fma.rn.f32x2 sum, a, b, c;\n mov.b64 {%0, %1}, sum;\n}\n"
        : "=f"(sum.x), "=f"(sum.y)
        : "f"(a.x), "f"(a.y), "f"(b.x), "f"(b.y), "f"(c.x), "f"(c.y));
    return sum;
}

}  // namespace deep_gemm::ptx
