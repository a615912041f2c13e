// Times the scale of a row of A, times that of a row of B, where all of K shares them.
#pragma once

#include <deep_gemm/epilogue/per_channel.cuh>

namespace deep_gemm {

struct ScalesOfA {
    static constexpr bool wanted(const GemmTask& task) { return task.a.scaling.per_channel(); }

    template <GemmConfig c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end) {
        multiply_channels<true>(values, end.params.scales_a, end.at);
    }
};

/// Or, of weights whose groups' scales are multiplied when they are converted, their second ones.
struct ScalesOfB {
    static constexpr bool wanted(const GemmTask& task) {
        return task.b.scaling.per_channel() || task.b.scaling.in_conversion();
    }

    template <GemmConfig c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end) {
        multiply_channels<false>(values, end.params.scales_b, end.at);
    }
};

}  // namespace deep_gemm
