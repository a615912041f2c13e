// The error function without branches, which would wait for values of rows that do not exist.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::epilogue {

#if defined(__CUDACC__)
/// Of this polynomial, lowest coefficient first.
template <int32_t kCount>
DG_DEVICE float polynomial(const float (&coefficients)[kCount], float x) {
    float value = coefficients[kCount - 1];
#pragma unroll
    for (int32_t i = kCount - 2; i >= 0; --i) value = __fmaf_rn(value, x, coefficients[i]);
    return value;
}

/// Within 1.2e-7: below 1, x times a polynomial in x^2; above, 1 - exp of one in x. (Fitted at Chebyshev's points.)
DG_DEVICE float erf_without_branches(float x) {
    constexpr float kBelow[] = {1.12837917f,    -0.376126269f,    0.112835975f,   -0.0268543288f,
                                0.00518931194f, -0.000801885499f, 7.88249711e-05f};
    constexpr float kAbove[] = {-0.000756968619f, -1.12592595f,   -0.639093319f,   -0.10331898f,
                                0.0226219859f,    -0.0034368676f, 0.000317572035f, -1.33093904e-05f};
    const float size = fabsf(x), bounded = size > 4.0f ? 4.0f : size;
    const float below = __fmul_rn(polynomial(kBelow, __fmul_rn(x, x)), x);
    const float above = copysignf(__fsub_rn(1.0f, expf(polynomial(kAbove, bounded))), x);
    return size < 1.0f ? below : above;
}
#endif

}  // namespace deep_gemm::epilogue
