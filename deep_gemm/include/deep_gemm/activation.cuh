// Gated activations in FP32, of products and of the kernels that quantise: the same bits from both.
#pragma once

#if defined(__CUDACC__)
#include <deep_gemm/epilogue/erf.cuh>
#include <deep_gemm/ptx/maximum.cuh>
#include <deep_gemm/ptx/reciprocal.cuh>
#else
#include <deep_gemm/types.cuh>

#include <string_view>
#endif

namespace deep_gemm {

/// gate * sigmoid(alpha * gate) * (up + up_shift); or up times GELU of the gate, by tanh or by erf.
enum class GateKind : int32_t { none, swiglu, geglu_tanh, geglu_erf };
/// Whether its formula keeps more registers than others.
constexpr bool is_large(GateKind kind) { return kind == GateKind::geglu_erf; }

/// Of SwiGLU: gates are at most `limit`, ups at most so far from 0 (infinite: no limit).
struct GateNumbers {
    float limit, alpha, up_shift;
};

#if !defined(__CUDACC__)
inline constexpr std::string_view kGateKinds[] = {"none", "swiglu", "geglu_tanh", "geglu_erf"};
#else
/// 1 / (1 + e^-x): no tanh, whose sum with 1 cancels. The reciprocal within 1 ulp, without the branches of a division:
/// of a quarter, so that neither it nor the reciprocal is subnormal, and with one step of Newton's. Of an infinite e^-x
/// the step's NaN is dropped, and it is 0.
DG_DEVICE float sigmoid_of(float x) {
    constexpr float kQuarter = 0.25f;
    const float quarter = __fmaf_rn(kQuarter, expf(-x), kQuarter), first = ptx::reciprocal_approx(quarter);
    const float error = fminf(__fmaf_rn(-quarter, first, 1.0f), 1.0f);
    return __fmul_rn(kQuarter, __fmaf_rn(error, first, first));
}

/// What lies beyond a limit is cut off; NaN stays NaN.
DG_DEVICE float within(float value, float limit) { return ptx::max_or_nan(ptx::min_or_nan(value, limit), -limit); }

/// No branches, because rows past the last one may hold anything. Without kNumbers they are {infinity, 1, 0}, which
/// make +0 of a -0.
template <GateKind kKind, bool kNumbers = true>
DG_DEVICE float gated(float gate, float up, const GateNumbers& numbers) {
    if constexpr (kKind == GateKind::swiglu && !kNumbers) {
        return __fmul_rn(__fmul_rn(gate, sigmoid_of(gate)), __fadd_rn(up, 0.0f));
    } else if constexpr (kKind == GateKind::swiglu) {
        gate = ptx::min_or_nan(gate, numbers.limit);
        const float factor = __fadd_rn(within(up, numbers.limit), numbers.up_shift);
        return __fmul_rn(__fmul_rn(gate, sigmoid_of(__fmul_rn(numbers.alpha, gate))), factor);
    } else if constexpr (kKind == GateKind::geglu_tanh) {
        // (1 + tanh(z)) / 2 is the sigmoid of 2 z.
        constexpr float kTwiceRoot = 1.5957691216057308f, kCubic = 0.044715f;
        const float cubic = __fmul_rn(__fmul_rn(gate, gate), gate);
        return __fmul_rn(__fmul_rn(gate, sigmoid_of(__fmul_rn(kTwiceRoot, __fmaf_rn(kCubic, cubic, gate)))), up);
    } else {
        constexpr float kRootHalf = 0.70710678118654752f;
        const float twice = __fadd_rn(1.0f, epilogue::erf_without_branches(__fmul_rn(gate, kRootHalf)));
        return __fmul_rn(__fmul_rn(__fmul_rn(0.5f, gate), twice), up);
    }
}
#endif

}  // namespace deep_gemm
