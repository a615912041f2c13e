// The end of a tile of sums that are scaled when complete: less what zero points of A add, to FP32, times the scale of
// a row of A, times that of a row of B, plus bias. In this order in every tile, so that an element has the same bits
// however operands and tiles lie.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/store/fragment.cuh>

namespace deep_gemm {

/// Calls visit(register, value) for all of a thread's registers, with values that lie along M of D, or along N.
template <GemmConfig c, bool kAlongM, Element kElement, typename Visit>
DG_DEVICE void for_each_along(const StorageOf<kElement>* data, int64_t stride, const Fragment<c>& at,
                              const Visit& visit) {
    using Both = decltype(load_pair<kElement>(data));
    using One = decltype(Both::x);
    const int32_t first = kAlongM ? at.row : at.col, end = kAlongM ? at.m_end : at.n_end;
    const auto load = [&](int32_t i) { return i < end ? to_register<kElement>(data[i * stride]) : One{}; };
    if constexpr (kAlongM != c.swap_ab) {  // along the instruction's rows: a thread has two
        const One of[2] = {load(first), load(first + Fragment16x8::kHalfRows)};
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) visit(i, of[Fragment16x8::half(i)]);
    } else {
        const auto each_group = [&](const auto& load_two) {
#pragma unroll
            for (int32_t group = 0; group < c.held_cols() / Fragment16x8::kCols; ++group) {
                const Both two = load_two(first + group * Fragment16x8::kCols);
#pragma unroll
                for (int32_t i = 0; i < Fragment16x8::kRegisters; ++i)
                    visit(Fragment16x8::kRegisters * group + i, Fragment16x8::neighbour(i) ? two.y : two.x);
            }
        };
        // Two loops: with the question inside, loads would wait for one another.
        const bool pairs = stride == 1 && end % 2 == 0 && reinterpret_cast<uint64_t>(data) % (2 * sizeof(*data)) == 0;
        if (pairs)
            each_group([&](int32_t i) { return i < end ? load_pair<kElement>(data + i) : Both{}; });
        else
            each_group([&](int32_t i) { return Both{load(i), load(i + 1)}; });
    }
}

/// The same with an operand's scales or zero points, of which all rows may share one.
template <GemmConfig c, bool kAlongM, Element kElement, typename Whole, typename Visit>
DG_DEVICE void for_each_of(const Whole& whole, const Fragment<c>& at, const Visit& visit) {
    const auto* const data = whole.data + (kAlongM ? at.group : at.expert) * whole.group_stride;
    if (whole.stride != 0) return for_each_along<c, kAlongM, kElement>(data, whole.stride, at, visit);
    const auto all = whole.data == nullptr ? whole.value : *data;
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; ++i) visit(i, all);
}
template <GemmConfig c, bool kAlongM, typename Visit>
DG_DEVICE void for_each_scale(const WholeScales& scales, const Fragment<c>& at, const Visit& visit) {
    for_each_of<c, kAlongM, Element::fp32>(scales, at, visit);
}

/// sum of (a - zero) b = sum of a b - zero * sum of b: exact where sums are.
template <GemmConfig c>
DG_DEVICE void subtract_zero_points(Results<c>& results, const Sums<c>& total, const Fragment<c>& at,
                                    const GemmParamsWithScales& params) {
    constexpr Element kSum = c.sum();  // FP32 where groups of K have scales: sums of B's rows have them too
    const auto* sums = static_cast<const StorageOf<kSum>*>(params.sums_b) + at.expert * params.sums_group_stride;
    StorageOf<kSum> of_row[kAccumulators<c>];
    for_each_along<c, false, kSum>(sums, 1, at, [&](int32_t i, StorageOf<kSum> sum) { of_row[i] = sum; });
    for_each_of<c, true, Element::s32>(params.zeros_a, at, [&](int32_t i, int32_t zero) {
        if constexpr (kSum == Element::s32)
            results[i] = static_cast<float>(total[i] - zero * of_row[i]);
        else
            results[i] = __fmaf_rn(-static_cast<float>(zero), of_row[i], total[i]);
    });
}

template <GemmConfig c>
DG_DEVICE void dequantise(Results<c>& results, const Sums<c>& total, const Fragment<c>& at, const GemmParams& of_any) {
    const GemmParamsWithScales& params = static_cast<const ParamsFor<c>&>(of_any);
    if constexpr (c.asymmetric_a) {
        subtract_zero_points<c>(results, total, at, params);
    } else {
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) results[i] = static_cast<float>(total[i]);
    }
    if constexpr (c.a.scaling.whole_k())
        for_each_scale<c, true>(params.scales_a, at,
                                [&](int32_t i, float scale) { results[i] = __fmul_rn(results[i], scale); });
    if constexpr (c.scales_sums_by_n())
        for_each_scale<c, false>(params.scales_b, at,
                                 [&](int32_t i, float scale) { results[i] = __fmul_rn(results[i], scale); });
    if constexpr (c.bias != Element::none) {
        const auto* bias = static_cast<const StorageOf<c.bias>*>(params.bias) + at.expert * params.bias_group_stride;
        for_each_along<c, false, c.bias>(bias, params.bias_stride, at,
                                         [&](int32_t i, float value) { results[i] = __fadd_rn(results[i], value); });
    }
}

}  // namespace deep_gemm
