// Scales of values that share one, and division by them: of the kernels that quantise, and of products whose D is.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

/// The largest magnitude that codes stand for.
constexpr float largest_code(Element element) {
    return element == Element::e4m3 ? 448.0f : element == Element::s8 ? 127.0f : 6.0f;
}

#if defined(__CUDACC__)
/// A power of two that UE8M0 can hold, not below a positive number: as utils.ceil_to_ue8m0.
DG_DEVICE float ceil_to_ue8m0(float value) {
    const uint32_t bits = __float_as_uint(value) & 0x7fffffffu;
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0);
    return __uint_as_float(min(max(exponent, 1u), 254u) << 23);
}

/// Smaller magnitudes count as this one, so that zeros give zeros.
inline constexpr float kSmallestAmax = 1e-4f;

/// Divides by a scale as IEEE does, with the reciprocal of it that many values share.
///
/// With the nearest reciprocal, each of two steps of correction makes a quotient faithful, then the nearest one
/// (Markstein). The remainder is taken with its sign turned, so that zeros keep theirs. An infinite scale makes zeros
/// and NaN: its remainders would all be NaN, but times a divisor of 0 they are none. One that is a power of two has an
/// exact reciprocal.
template <bool kPowerOfTwo>
struct Divisor {
    float reciprocal = 0, divisor = 0;

    Divisor() = default;
    DG_DEVICE explicit Divisor(float scale, float /*amax*/ = 0) : reciprocal(__fdiv_rn(1.0f, scale)) {
        if constexpr (!kPowerOfTwo) divisor = __float_as_uint(scale) == 0x7f800000u ? 0.0f : scale;
    }

    DG_DEVICE float quotient(float value) const {
        float found = __fmul_rn(value, reciprocal);
        if constexpr (!kPowerOfTwo) {
#pragma unroll
            for (int32_t step = 0; step < 2; ++step)
                found = __fmaf_rn(__fmaf_rn(found, divisor, -value), -reciprocal, found);
        }
        return found;
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
