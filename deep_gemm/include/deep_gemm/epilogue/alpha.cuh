// Times a factor, of each expert.
#pragma once

#include <deep_gemm/epilogue/scales.cuh>

namespace deep_gemm {

struct Alpha {
    static constexpr bool wanted(const GemmTask& task) { return task.alpha; }

    template <GemmConfig c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end) {
        static_assert(!ScalesOfB::wanted(c), "the host passes it in the place of B's scales");
        multiply_channels<false>(values, end.params.scales_b, end.at);
    }
};

}  // namespace deep_gemm
