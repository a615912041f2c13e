// Numbers of which each row of an operand has one, or all rows share one.
#pragma once

#include <deep_gemm/epilogue/tile_end.cuh>

namespace deep_gemm {

/// visit(i, number) for all values: those of A's rows, which lie along M, or of B's.
template <bool kAlongM, Element kElement, typename Numbers, typename Place, typename Visit>
DG_DEVICE void for_each_channel(const Numbers& numbers, const Place& at, const Visit& visit) {
    const auto* const data = numbers.data + (kAlongM ? at.group : at.expert) * numbers.group_stride;
    if (numbers.stride != 0) return at.template for_each_along<kAlongM, kElement>(data, numbers.stride, visit);
    const auto all = numbers.data == nullptr ? numbers.value : *data;
#pragma unroll
    for (int32_t i = 0; i < Place::kValues; ++i) visit(i, all);
}

template <bool kAlongM, typename Values, typename Place>
DG_DEVICE void multiply_channels(Values& values, const ChannelScales& scales, const Place& at) {
    for_each_channel<kAlongM, Element::fp32>(scales, at,
                                             [&](int32_t i, float scale) { values[i] = __fmul_rn(values[i], scale); });
}

}  // namespace deep_gemm
