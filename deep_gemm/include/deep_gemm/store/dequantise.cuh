// The end of a tile of sums that are scaled when complete: less what zero points of A add, to FP32, times the scale of
// a row of A, times that of a row of B, plus bias. In this order in every tile and on every architecture, so that an
// element has the same bits however operands and tiles lie.
//
// `At` says where a thread's values lie in D: Fragment (fragment.cuh), or what an architecture has in its place.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/params.cuh>

namespace deep_gemm {

/// Calls visit(register, value) for all of a thread's values with an operand's scales or zero points, of which all rows
/// may share one.
template <bool kAlongM, Element kElement, typename Whole, typename At, typename Visit>
DG_DEVICE void for_each_of(const Whole& whole, const At& at, const Visit& visit) {
    const auto* const data = whole.data + (kAlongM ? at.group : at.expert) * whole.group_stride;
    if (whole.stride != 0) return at.template for_each_along<kAlongM, kElement>(data, whole.stride, visit);
    const auto all = whole.data == nullptr ? whole.value : *data;
#pragma unroll
    for (int32_t i = 0; i < At::kValues; ++i) visit(i, all);
}
template <bool kAlongM, typename At, typename Visit>
DG_DEVICE void for_each_scale(const ChannelScales& scales, const At& at, const Visit& visit) {
    for_each_of<kAlongM, Element::fp32>(scales, at, visit);
}

/// sum of (a - zero) b = sum of a b - zero * sum of b: exact where sums are.
template <GemmConfig c, typename At, typename Result, typename Sum>
DG_DEVICE void subtract_zero_points(Result (&results)[At::kValues], const Sum (&total)[At::kValues], const At& at,
                                    const GemmParamsWithScales& params) {
    constexpr Element kSum = c.sum();  // FP32 where groups of K have scales: sums of B's rows have them too
    const auto* sums = static_cast<const StorageOf<kSum>*>(params.sums_b) + at.expert * params.sums_group_stride;
    const auto subtract = [&](int32_t i, int32_t zero, Sum of_row) {
        if constexpr (kSum == Element::s32)
            results[i] = static_cast<float>(total[i] - zero * of_row);
        else
            results[i] = __fmaf_rn(-static_cast<float>(zero), of_row, total[i]);
    };
    // First those along the instruction's rows, of which a thread has few: they stay in registers.
    if constexpr (c.swap_ab) {
        Sum of_row[At::kValues];
        at.template for_each_along<false, kSum>(sums, 1, [&](int32_t i, Sum sum) { of_row[i] = sum; });
        for_each_of<true, Element::s32>(params.zeros_a, at,
                                        [&](int32_t i, int32_t zero) { subtract(i, zero, of_row[i]); });
    } else {
        int32_t zeros[At::kValues];
        for_each_of<true, Element::s32>(params.zeros_a, at, [&](int32_t i, int32_t zero) { zeros[i] = zero; });
        at.template for_each_along<false, kSum>(sums, 1, [&](int32_t i, Sum sum) { subtract(i, zeros[i], sum); });
    }
}

/// Sums of codes that no scale multiplies. Conversion makes 16 times its value of a signed code, which stored scales
/// make up for where there are some; each sum is a multiple of 16 then.
template <GemmConfig c, int32_t kCount, typename Sum>
DG_DEVICE void undo_conversion(Sum (&sums)[kCount]) {
    if constexpr (c.output == Element::s32 && c.a.element == Element::s8 && c.b.element == Element::s4)
        for (Sum& sum : sums) sum >>= 4;
}

template <GemmConfig c, typename At, typename Result, typename Sum>
DG_DEVICE void dequantise(Result (&results)[At::kValues], const Sum (&total)[At::kValues], const At& at,
                          const GemmParams& of_any) {
    const GemmParamsWithScales& params = static_cast<const ParamsFor<c>&>(of_any);
    if constexpr (c.asymmetric_a) {
        subtract_zero_points<c>(results, total, at, params);
    } else {
#pragma unroll
        for (int32_t i = 0; i < At::kValues; ++i) results[i] = static_cast<float>(total[i]);
    }
    if constexpr (c.a.scaling.per_channel())
        for_each_scale<true>(params.scales_a, at,
                             [&](int32_t i, float scale) { results[i] = __fmul_rn(results[i], scale); });
    if constexpr (c.scales_sums_by_n())
        for_each_scale<false>(params.scales_b, at,
                              [&](int32_t i, float scale) { results[i] = __fmul_rn(results[i], scale); });
    if constexpr (c.bias != Element::none) {
        const auto* bias = static_cast<const StorageOf<c.bias>*>(params.bias) + at.expert * params.bias_group_stride;
        at.template for_each_along<false, c.bias>(bias, params.bias_stride, [&](int32_t i, float value) {
            results[i] = __fadd_rn(results[i], value);
        });
    }
}

}  // namespace deep_gemm
