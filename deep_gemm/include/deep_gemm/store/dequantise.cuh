// The end of a tile of sums that are scaled when complete: to FP32, times the scale of a row of A, times that of a row
// of B, plus bias. In this order in every tile, so that an element has the same bits however operands and tiles lie.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/store/direct.cuh>

namespace deep_gemm {

/// Calls visit(register, value) for all of a thread's registers, with values that lie along M of D, or along N.
template <GemmConfig c, bool kAlongM, Element kElement, typename Visit>
DG_DEVICE void for_each_along(const StorageOf<kElement>* data, int64_t stride, const Fragment<c>& at,
                              const Visit& visit) {
    const int32_t first = kAlongM ? at.row : at.col, end = kAlongM ? at.m_end : at.n_end;
    const auto load = [&](int32_t i) { return i < end ? to_register<kElement>(data[i * stride]) : 0.0f; };
    if constexpr (kAlongM != c.swap_ab) {  // along the instruction's rows: a thread has two
        const float of[2] = {load(first), load(first + Fragment16x8::kHalfRows)};
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) visit(i, of[Fragment16x8::half(i)]);
    } else {
        const auto each_group = [&](const auto& load_two) {
#pragma unroll
            for (int32_t group = 0; group < c.tile.cols / Fragment16x8::kCols; ++group) {
                const float2 two = load_two(first + group * Fragment16x8::kCols);
#pragma unroll
                for (int32_t i = 0; i < Fragment16x8::kRegisters; ++i)
                    visit(Fragment16x8::kRegisters * group + i, Fragment16x8::neighbour(i) ? two.y : two.x);
            }
        };
        // Two loops: with the question inside, loads would wait for one another.
        const bool pairs = stride == 1 && end % 2 == 0 && reinterpret_cast<uint64_t>(data) % (2 * sizeof(*data)) == 0;
        if (pairs)
            each_group([&](int32_t i) { return i < end ? load_pair<kElement>(data + i) : float2{}; });
        else
            each_group([&](int32_t i) { return make_float2(load(i), load(i + 1)); });
    }
}

/// The same with an operand's scales.
template <GemmConfig c, bool kAlongM, typename Visit>
DG_DEVICE void for_each_scale(const WholeScales& scales, const Fragment<c>& at, const Visit& visit) {
    const float* const data = scales.data + (kAlongM ? at.group : at.expert) * scales.group_stride;
    if (scales.stride != 0) return for_each_along<c, kAlongM, Element::fp32>(data, scales.stride, at, visit);
    const float all = scales.data == nullptr ? scales.value : *data;
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; ++i) visit(i, all);
}

template <GemmConfig c>
DG_DEVICE void dequantise(Results<c>& results, const Accumulators<c>& total, const Fragment<c>& at,
                          const GemmParams& of_any) {
    const GemmParamsWithScales& params = static_cast<const ParamsFor<c>&>(of_any);
    for_each_scale<c, true>(params.scales_a, at, [&](int32_t i, float scale) {
        results[i] = __fmul_rn(static_cast<float>(total[i]), scale);
    });
    if constexpr (c.scales_sums_by_n())
        for_each_scale<c, false>(params.scales_b, at,
                                 [&](int32_t i, float scale) { results[i] = __fmul_rn(results[i], scale); });
    if constexpr (c.bias != Element::none) {
        const auto* bias = static_cast<const StorageOf<c.bias>*>(params.bias);
        for_each_along<c, false, c.bias>(bias, params.bias_stride, at,
                                         [&](int32_t i, float value) { results[i] = __fadd_rn(results[i], value); });
    }
}

}  // namespace deep_gemm
