// Plus a number for each N, of each expert.
#pragma once

#include <deep_gemm/epilogue/step.cuh>
#if defined(__CUDACC__)
#include <deep_gemm/element.cuh>
#endif

namespace deep_gemm::epilogue {

struct Bias {
    struct Params {
        const void* data;
        int64_t group_stride;
        int32_t stride;
    };
    static constexpr bool wanted(const GemmConfig& c) { return c.bias != Element::none; }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end,
                                const Params& params) {
        const auto* bias = static_cast<const StorageOf<c.bias>*>(params.data) + end.at.expert * params.group_stride;
        end.at.template for_each_along<false, c.bias, true>(bias, params.stride, [&](int32_t i, float value) {
            values[i] = __fadd_rn(values[i], value);
        });
    }
#endif
};

}  // namespace deep_gemm::epilogue
