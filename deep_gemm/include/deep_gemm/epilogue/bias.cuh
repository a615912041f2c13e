// Plus a number for each N, of each expert.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/epilogue/tile_end.cuh>

namespace deep_gemm {

struct Bias {
    static constexpr bool wanted(const GemmTask& task) { return task.bias != Element::none; }

    template <GemmConfig c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end) {
        constexpr Element kBias = c.bias;
        const auto& [at, tile, padding, params] = end;
        const auto* bias = static_cast<const StorageOf<kBias>*>(params.bias) + at.expert * params.bias_group_stride;
        at.template for_each_along<false, kBias>(bias, params.bias_stride, [&](int32_t i, float value) {
            values[i] = __fadd_rn(values[i], value);
        });
    }
};

}  // namespace deep_gemm
