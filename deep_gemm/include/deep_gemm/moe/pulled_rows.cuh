// When rows that warps of a launch bring may be read by its products.
//
// Each block of rows has a counter in memory. A warp that has brought a row counts up, and so does a CTA that has seen
// that all rows are there: the last of these sets it to 0 again, so that the next launch finds it as this one did.
#pragma once

#include <deep_gemm/moe/ready_rows.cuh>
#include <deep_gemm/ranks/rows.cuh>

namespace deep_gemm {

template <Constant<MoeLayerConfig> c>
class PulledRows {
public:
    DG_DEVICE explicit PulledRows(const MoeLayerRanksParams& params)
        : counters_(params.pulled), readers_(blocks_of_n<MoeLayerParts<c>::kUp>(params.up)) {}

    /// A warp has brought a row of a group that ends at `end`.
    DG_DEVICE void brought(int32_t row, int32_t end) const {
        __syncwarp();  // all its lanes have
        const int32_t first = row / kRows * kRows;
        if (ptx::lane() == 0) ptx::count_release(counters_ + row / kRows, last(first, end));
    }

    /// Until copies of this warp may read the rows of a tile of gate and up.
    DG_DEVICE void wait(const Tile& tile) const {
        const int32_t first = c.up.swap_ab ? tile.col : tile.row;
        uint32_t* const of_rows = counters_ + first / kRows;
        while (ptx::load_acquire(of_rows) < rows(first, tile.m_end)) ptx::sleep_nanoseconds(20);
        ptx::fence_memory_for_async_proxy();
        __syncwarp();  // nobody looks at the counter any more
        if (ptx::lane() == 0) ptx::count_relaxed(of_rows, last(first, tile.m_end));
    }

private:
    static constexpr int32_t kRows = c.up.tile_m();

    static DG_DEVICE uint32_t rows(int32_t first, int32_t end) { return min(kRows, end - first); }
    DG_DEVICE uint32_t last(int32_t first, int32_t end) const { return rows(first, end) + readers_ - 1; }

    uint32_t* counters_;
    uint32_t readers_;  // tiles side by side
};

/// Rows of experts here, by one of the warps of all CTAs that bring them, in the order in which tiles want them.
template <Constant<MoeLayerConfig> c, Constant<GemmConfig> kUp>
DG_DEVICE void pull_rows_of_tiles(const GroupTable<kUp>& groups, const MoeLayerRanksParams& params, int32_t warp) {
    const PulledRows<c> pulled(params);
    const int32_t lane = ptx::lane(), step = static_cast<int32_t>(gridDim.x) * kPullWarps;
    int32_t place = warp * static_cast<int32_t>(gridDim.x) + static_cast<int32_t>(blockIdx.x), before = 0, index = 0;
    GroupEntry entry = groups.entry(0);
#pragma unroll 1
    for (;; place += step) {
        while (entry.group >= 0 && place - before >= entry.row_end - entry.row_begin) {
            before += entry.row_end - entry.row_begin;
            entry = groups.entry(++index);
        }
        if (entry.group < 0) return;
        const int32_t row = entry.row_begin + place - before;
        pull_row(params.travel, row, ptx::load_global_int(params.travel.source + row), lane);
        pulled.brought(row, entry.row_end);
    }
}

}  // namespace deep_gemm
