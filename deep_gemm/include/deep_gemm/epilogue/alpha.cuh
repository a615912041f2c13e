// Times a factor, of each expert.
#pragma once

#include <deep_gemm/epilogue/step.cuh>

namespace deep_gemm::epilogue {

struct Alpha {
    using Params = PerChannel<float>;
    static constexpr bool wanted(const GemmConfig& c) { return c.alpha; }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end,
                                const Params& factor) {
        multiply_channels<false>(values, factor, end.at);
    }
#endif
};

}  // namespace deep_gemm::epilogue
