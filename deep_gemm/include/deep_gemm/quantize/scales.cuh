// From the largest magnitude of values that share a scale to the scale, and what divides by it.
#pragma once

#include <deep_gemm/ptx/convert.cuh>
#include <deep_gemm/ptx/maximum.cuh>
#include <deep_gemm/quantize/config.cuh>

namespace deep_gemm {

/// The largest magnitude that codes stand for.
constexpr float largest_code(Element element) {
    return element == Element::e4m3 ? 448.0f : element == Element::s8 ? 127.0f : 6.0f;
}

/// A power of two that UE8M0 can hold, not below a positive number: as utils.ceil_to_ue8m0.
DG_DEVICE float ceil_to_ue8m0(float value) {
    const uint32_t bits = __float_as_uint(value) & 0x7fffffffu;
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0);
    return __uint_as_float(min(max(exponent, 1u), 254u) << 23);
}

/// Smaller magnitudes count as this one, so that zeros give zeros.
inline constexpr float kSmallestAmax = 1e-4f;

template <QuantizeConfig c>
DG_DEVICE float scale_of(float amax) {
    const float scale = __fdiv_rn(ptx::max_or_nan(amax, kSmallestAmax), largest_code(c.output));
    return c.powers_of_two() ? ceil_to_ue8m0(scale) : scale;
}

/// A number of E4M3 that is not negative.
DG_DEVICE float from_e4m3(uint32_t code) {
    constexpr uint32_t kNan = 0x7f;
    return code == kNan ? __uint_as_float(0x7fffffffu) : __fmul_rn(__uint_as_float(code << 20), 0x1p120f);
}

/// A scale as it is stored, and what it is that values are divided by.
struct MadeScale {
    uint32_t stored;
    float divisor;
};

template <QuantizeConfig c>
DG_DEVICE MadeScale make_scale(const QuantizeParams& params, float amax) {
    if constexpr (c.scales == ScaleForm::e4m3) {
        const float whole = *params.whole, wanted = __fdiv_rn(__fdiv_rn(amax, largest_code(c.output)), whole);
        const uint32_t code = ptx::pack_e4m3(wanted, 0.0f) & 0xff;
        return {code, __fmul_rn(from_e4m3(code), whole)};
    } else {
        const float scale = scale_of<c>(amax);
        return {c.scales == ScaleForm::exponents ? __float_as_uint(scale) >> 23 : __float_as_uint(scale), scale};
    }
}

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
            found = __fmaf_rn(__fmaf_rn(found, divisor, -value), -reciprocal, found);
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

/// Divides values up to a magnitude by what may be anything, as a product of two scales. Zero makes zeros. Where the
/// reciprocal, quotients and remainders that matter are neither subnormal nor infinite, it divides as the others do.
struct AnyDivisor {
    Divisor<false> usual;  // its reciprocal is 0 where they may be

    AnyDivisor() = default;
    DG_DEVICE AnyDivisor(float scale, float amax) : usual(scale) {
        constexpr float kLeast = 0x1p-60f, kMost = 0x1p60f;
        const bool is_usual = fabsf(scale) >= kLeast && fabsf(scale) <= kMost && amax <= kMost;
        usual.divisor = scale, usual.reciprocal = is_usual ? usual.reciprocal : 0.0f;
    }

    template <int32_t kCount>
    DG_DEVICE void divide(const float (&values)[kCount], float (&quotients)[kCount]) const {
        if (usual.reciprocal != 0.0f) {
            usual.divide(values, quotients);
        } else {
#pragma unroll
            for (int32_t i = 0; i < kCount; ++i)
                quotients[i] = usual.divisor == 0.0f ? 0.0f : __fdiv_rn(values[i], usual.divisor);
        }
    }
    DG_DEVICE AnyDivisor of_lane(int32_t lane) const {
        AnyDivisor other;
        other.usual = usual.of_lane(lane);
        return other;
    }
};

template <QuantizeConfig c>
struct DivisorFor {
    using Type = Divisor<c.powers_of_two()>;
};
template <QuantizeConfig c>
    requires(c.scales == ScaleForm::e4m3)
struct DivisorFor<c> {
    using Type = AnyDivisor;
};
template <QuantizeConfig c>
using DivisorOf = typename DivisorFor<c>::Type;

/// Writes the scale of a row and its `k_group`th group of K. The last one of a row fills up its word, as if zeros
/// followed K.
template <QuantizeConfig c>
DG_DEVICE void store_scale(const QuantizeParams& params, int64_t matrix, int64_t row, int32_t k_group,
                           uint32_t stored) {
    const int64_t first = matrix * params.s_group_stride + row * params.s_row_stride;
    if constexpr (c.scales == ScaleForm::exponents) {
        uint8_t* const word = params.s + (first + k_group / kScalesPerWord * params.s_k_stride) * 4;
        word[k_group % kScalesPerWord] = static_cast<uint8_t>(stored);
        if ((k_group + 1) * c.group < params.k) return;
        const uint32_t of_zeros = make_scale<c>(params, 0.0f).stored;
#pragma unroll 1
        for (int32_t rest = k_group % kScalesPerWord + 1; rest < kScalesPerWord; ++rest)
            word[rest] = static_cast<uint8_t>(of_zeros);
    } else if constexpr (c.scales == ScaleForm::e4m3) {
        params.s[first + k_group * params.s_k_stride] = static_cast<uint8_t>(stored);
    } else {
        reinterpret_cast<uint32_t*>(params.s)[first + k_group * params.s_k_stride] = stored;
    }
}

}  // namespace deep_gemm
