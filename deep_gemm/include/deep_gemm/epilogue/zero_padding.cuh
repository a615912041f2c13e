// Rows of padding become zero, whatever A, its scales and C hold there: those between a psum group and the next one
// (tiles end before that starts, so whole tiles may be written), and those that a contiguous layout says are none.
#pragma once

#include <deep_gemm/epilogue/step.cuh>

namespace deep_gemm::epilogue {

struct ZeroPadding {
    using Params = NoParams;
    static constexpr bool wanted(const GemmConfig& c) {
        return c.grouping == Grouping::m_psum || c.grouping == Grouping::m_contiguous;
    }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end, NoParams) {
        const auto& tile = end.tile;
        if constexpr (c.grouping == Grouping::m_psum) {
            if ((c.swap_ab ? tile.col + c.tile.cols : tile.row + c.tile.rows) <= tile.m_end) return;
            end.at.for_each_row([&](int32_t i, int32_t row) { values[i] = row < tile.m_end ? values[i] : 0; });
        } else {
            end.padding.for_each_value(end.at, tile, [&](int32_t i) { values[i] = 0; });
        }
    }
#endif
};

}  // namespace deep_gemm::epilogue
