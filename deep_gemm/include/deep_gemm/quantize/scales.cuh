// From the largest magnitude of values that share a scale to the scale, and what divides by it.
#pragma once

#include <deep_gemm/ptx/convert.cuh>
#include <deep_gemm/ptx/maximum.cuh>
#include <deep_gemm/quantize/config.cuh>
#include <deep_gemm/quantize/divisor.cuh>

namespace deep_gemm {

template <Constant<QuantizeConfig> c>
DG_DEVICE float scale_of(float amax) {
    const float scale = divided_by<largest_code(c.output)>(ptx::max_or_nan(amax, kSmallestAmax));
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

template <Constant<QuantizeConfig> c>
DG_DEVICE MadeScale make_scale(const QuantizeParams& params, float amax) {
    if constexpr (c.scales == ScaleForm::e4m3) {
        const float whole = *params.whole, wanted = __fdiv_rn(__fdiv_rn(amax, float{largest_code(c.output)}), whole);
        const uint32_t code = ptx::pack_e4m3(wanted, 0.0f) & 0xff;
        return {code, __fmul_rn(from_e4m3(code), whole)};
    } else {
        const float scale = scale_of<c>(amax);
        return {c.scales == ScaleForm::exponents ? __float_as_uint(scale) >> 23 : __float_as_uint(scale), scale};
    }
}

/// Divides by what may be anything, as a product of two scales, where only codes of FP4 are made of quotients. Zero
/// makes zeros. Where the reciprocal, quotients and remainders that matter are neither subnormal nor infinite, it
/// divides as the others do; else after both sides were multiplied by a power of two, and with what is far beyond 6 cut
/// off.
struct AnyDivisor {
    Divisor<false> usual;
    float factor = 1;  // 1 where nothing is unusual, 0 of zero

    AnyDivisor() = default;
    DG_DEVICE AnyDivisor(float scale, float amax) {
        constexpr float kLeast = 0x1p-60f, kMost = 0x1p60f;
        const float magnitude = fabsf(scale);
        factor = magnitude < kLeast ? 0x1p100f : magnitude > kMost ? 0x1p-100f : amax > kMost ? 0x1p-1f : 1.0f;
        usual = Divisor<false>(__fmul_rn(scale, factor));
        if (scale == 0.0f) factor = 0.0f;
    }

    template <int32_t kCount>
    DG_DEVICE void divide(const float (&values)[kCount], float (&quotients)[kCount]) const {
        if (factor == 1.0f) return usual.divide(values, quotients);
#pragma unroll
        for (int32_t i = 0; i < kCount; ++i) {
            constexpr float kFar = 0x1p20f;
            const float value = __fmul_rn(values[i], factor),
                        found = fminf(fmaxf(__fmul_rn(value, usual.reciprocal), -kFar), kFar);
            const float quotient = __fmaf_rn(__fmaf_rn(found, usual.divisor, -value), -usual.reciprocal, found);
            quotients[i] = factor == 0.0f ? 0.0f : quotient;
        }
    }
    DG_DEVICE AnyDivisor of_lane(int32_t lane) const {
        AnyDivisor other;
        other.usual = usual.of_lane(lane);
        other.factor = __shfl_sync(0xffffffff, factor, lane);
        return other;
    }
};

template <Constant<QuantizeConfig> c>
struct DivisorFor {
    using Type = Divisor<c.powers_of_two()>;
};
template <Constant<QuantizeConfig> c>
    requires(c.scales == ScaleForm::e4m3)
struct DivisorFor<c> {
    using Type = AnyDivisor;
};
template <Constant<QuantizeConfig> c>
using DivisorOf = typename DivisorFor<c>::Type;

/// Writes the scale of a row and its `k_group`th group of K. The last one of a row fills up its word, as if zeros
/// followed K.
template <Constant<QuantizeConfig> c>
DG_DEVICE void store_scale(const QuantizeParams& params, int32_t matrix, int32_t row, int32_t k_group,
                           uint32_t stored) {
    const int64_t first = distance(matrix, params.s_group_stride) + distance(row, params.s_row_stride);
    if constexpr (c.scales == ScaleForm::exponents) {
        uint8_t* const word = params.s + (first + distance(k_group / kScalesPerWord, params.s_k_stride)) * 4;
        word[k_group % kScalesPerWord] = static_cast<uint8_t>(stored);
        if ((k_group + 1) * c.group < params.k) return;
        const uint32_t of_zeros = make_scale<c>(params, 0.0f).stored;
#pragma unroll 1
        for (int32_t rest = k_group % kScalesPerWord + 1; rest < kScalesPerWord; ++rest)
            word[rest] = static_cast<uint8_t>(of_zeros);
    } else if constexpr (c.scales == ScaleForm::e4m3) {
        params.s[first + distance(k_group, params.s_k_stride)] = static_cast<uint8_t>(stored);
    } else {
        reinterpret_cast<uint32_t*>(params.s)[first + distance(k_group, params.s_k_stride)] = stored;
    }
}

}  // namespace deep_gemm
