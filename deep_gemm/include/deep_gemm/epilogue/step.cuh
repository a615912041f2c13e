// What all steps of the epilogue know.
#pragma once

#include <deep_gemm/config.cuh>

namespace deep_gemm {

/// Of steps that need none of their own.
struct NoParams {};

/// Numbers of which each row of an operand has one, or all rows share one.
template <typename Number>
struct PerChannel {
    const Number* data;  // null: `value` is the number
    int64_t group_stride;
    int32_t stride;  // elements; 0: one for all
    Number value;
};

#if defined(__CUDACC__)
/// One thread's complete sums, and what becomes of them.
template <Constant<GemmConfig> c, typename Place>
using SumsAt = RegisterOf<c.sum()>[Place::kValues];
template <Constant<GemmConfig> c, typename Place>
using FinishedAt = RegisterOf<c.output>[Place::kValues];

/// Where what a gate has made of a place's values lies: the same place, where there is no gate.
template <typename Place>
using PlaceOfD = typename Place::OfD;

template <Constant<GemmConfig> c, typename Place, typename Padding>
struct TileEnd;

/// visit(i, number) for all values: those of A's rows, which lie along M, or of B's.
template <bool kAlongM, Element kElement, typename Number, typename Place, typename Visit>
DG_DEVICE void for_each_channel(const PerChannel<Number>& numbers, const Place& at, const Visit& visit) {
    const auto* const data = numbers.data + (kAlongM ? at.group : at.expert) * numbers.group_stride;
    if (numbers.stride != 0) return at.template for_each_along<kAlongM, kElement>(data, numbers.stride, visit);
    const auto all = numbers.data == nullptr ? numbers.value : *data;
#pragma unroll
    for (int32_t i = 0; i < Place::kValues; ++i) visit(i, all);
}

template <bool kAlongM, typename Values, typename Place>
DG_DEVICE void multiply_channels(Values& values, const PerChannel<float>& scales, const Place& at) {
    for_each_channel<kAlongM, Element::fp32>(scales, at,
                                             [&](int32_t i, float scale) { values[i] = __fmul_rn(values[i], scale); });
}
#endif

}  // namespace deep_gemm
