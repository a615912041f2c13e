// Scales of values that share one, and division by them: of the kernels that quantise, and of products whose D is.
#pragma once

#include <deep_gemm/format.cuh>
#if defined(__CUDACC__)
#include <deep_gemm/ptx/reciprocal.cuh>
#endif

namespace deep_gemm {

/// The largest magnitude that codes stand for.
constexpr int32_t largest_code(Element element) {
    return element == Element::e4m3 ? 448 : element == Element::s8 ? 127 : 6;
}

#if defined(__CUDACC__)
/// A power of two that UE8M0 can hold, not below a positive number: as utils.ceil_to_ue8m0.
DG_DEVICE float ceil_to_ue8m0(float value) {
    const uint32_t exponent = ((__float_as_uint(value) & 0x7fffffffu) + 0x7fffffu) >> 23;
    return __uint_as_float(min(max(exponent, 1u), 254u) << 23);
}

/// Smaller magnitudes count as this one, so that zeros give zeros.
inline constexpr float kSmallestAmax = 1e-4f;

/// Division by what code knows, of numbers from kSmallestAmax on, as IEEE does it: times a reciprocal of 48 bits. Its
/// high part is below it, so that both parts of an infinite quotient are. (All mantissas were tried, of 448, 127, 6 and
/// 255.)
constexpr double kBelowOne = 1.0 - 0x1p-24;
template <int32_t kBy>
DG_DEVICE float divided_by(float value) {
    constexpr double kExact = 1.0 / kBy;
    constexpr auto kHigh = static_cast<float>(kExact * kBelowOne), kLow = static_cast<float>(kExact - kHigh);
    return __fmaf_rn(value, kHigh, __fmul_rn(value, kLow));
}

/// Divides by a positive scale, with the reciprocal of it that many values share.
///
/// A step of correction makes the quotient that IEEE's division gives, or its neighbour; and on the same side of
/// what is halfway between two codes, or there, as that one: codes are the same. (All scales were tried with all values
/// next to such, of codes up to 256 apart.) Only where the mantissa is all ones it takes a reciprocal that is rounded
/// right, which is odd. The remainder is taken with its sign turned, so that zeros keep theirs. An infinite scale makes
/// zeros and NaN: its remainders would all be NaN, but times a divisor of 0 they are none. One that is a power of two
/// has an exact reciprocal.
template <bool kPowerOfTwo>
struct Divisor {
    float reciprocal = 0, divisor = 0;

    Divisor() = default;
    DG_DEVICE explicit Divisor(float scale, float /*amax*/ = 0) {
        const uint32_t bits = __float_as_uint(scale);
        if constexpr (kPowerOfTwo) {
            constexpr uint32_t kTwice = 254u << 23, kLeast = 1u << 22;  // of 2^127 it is subnormal
            reciprocal = __uint_as_float(max(kTwice - bits, kLeast));
        } else {
            constexpr uint32_t kMantissa = 0x7fffffu;
            divisor = bits == 0x7f800000u ? 0.0f : scale;
            const float first = ptx::reciprocal_approx(scale);
            const uint32_t found = __float_as_uint(__fmaf_rn(first, __fmaf_rn(-divisor, first, 1.0f), first));
            reciprocal = __uint_as_float((bits & kMantissa) == kMantissa ? found | 1 : found);
        }
    }

    DG_DEVICE float quotient(float value) const {
        const float found = __fmul_rn(value, reciprocal);
        return kPowerOfTwo ? found : __fmaf_rn(__fmaf_rn(found, divisor, -value), -reciprocal, found);
    }
    template <int32_t kCount>
    DG_DEVICE void divide(const float (&values)[kCount], float (&quotients)[kCount]) const {
#pragma unroll
        for (int32_t i = 0; i < kCount; ++i) quotients[i] = quotient(values[i]);
    }

    DG_DEVICE Divisor of_lane(int32_t lane) const {
        Divisor other;
        other.reciprocal = __shfl_sync(0xffffffff, reciprocal, lane);
        if constexpr (!kPowerOfTwo) other.divisor = __shfl_sync(0xffffffff, divisor, lane);
        return other;
    }
};
#endif

}  // namespace deep_gemm
