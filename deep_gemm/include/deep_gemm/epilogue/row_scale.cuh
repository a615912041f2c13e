// Times a number of the row: the weight that a router gave a token's expert.
#pragma once

#include <deep_gemm/epilogue/step.cuh>

namespace deep_gemm::epilogue {

struct RowScale {
    using Params = PerChannel<float>;
    static constexpr bool wanted(const GemmConfig& c) { return c.row_scale; }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end,
                                const Params& weights) {
        multiply_channels<true>(values, weights, end.at);
    }
#endif
};

}  // namespace deep_gemm::epilogue
