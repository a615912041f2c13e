// Times the scale of a row of A, times that of a row of B, where all of K shares them.
#pragma once

#include <deep_gemm/epilogue/step.cuh>

namespace deep_gemm::epilogue {

struct ScalesOfA {
    using Params = PerChannel<float>;
    static constexpr bool wanted(const GemmConfig& c) { return c.a.scaling.per_channel(); }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end,
                                const Params& scales) {
        multiply_channels<true>(values, scales, end.at);
    }
#endif
};

/// Or, of weights whose groups' scales are multiplied when they are converted, their second ones.
struct ScalesOfB {
    using Params = PerChannel<float>;
    static constexpr bool wanted(const GemmConfig& c) {
        return c.b.scaling.per_channel() || c.b.scaling.in_conversion();
    }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end,
                                const Params& scales) {
        multiply_channels<false>(values, scales, end.at);
    }
#endif
};

}  // namespace deep_gemm::epilogue
