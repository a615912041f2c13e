// When rows that warps of a launch bring may be read by its products, and when others may take their place.
//
// Blocks of rows, counted through all experts, lie in turn in as many places as there is room for. Each place has a
// counter in memory: a warp that has brought a row counts up, and so does a tile that has read its rows. A block is
// there when all its rows have been counted, and its place is free when all its tiles have been, too. The last count of
// a launch sets the counter to 0 again, so that the next launch finds it as this one did.
//
// No deadlock: tiles are walked strip by strip (Rasterizer), and places are at least as many as the blocks of a strip.
// So all blocks that tiles of a place's former block wait for come before the block that waits for the place.
#pragma once

#include <deep_gemm/moe/ready_rows.cuh>
#include <deep_gemm/ranks/rows.cuh>

namespace deep_gemm {

template <Constant<MoeLayerConfig> c>
class PulledRows {
    static constexpr int32_t kRows = c.up.tile_m();

public:
    DG_DEVICE PulledRows(const MoeLayerRanksParams& params, const GroupTable<MoeLayerParts<c>::kUp>& groups)
        : params_(params), groups_(groups) {}

    /// Where a block's rows begin.
    DG_DEVICE int32_t first_row(int32_t block) const { return place(block) * kRows; }

    /// Until a block may be brought.
    DG_DEVICE void wait_for_place(int32_t block) const { wait_until(block, 0); }

    /// A warp has brought the `row`th of the `rows` that a block has.
    DG_DEVICE void brought(int32_t block, int32_t row, int32_t rows) const {
        __syncwarp();  // all its lanes have
        if (ptx::lane() == 0) count(block);
        // What is missing of a block's height is counted with its first row.
        if (row == 0)
#pragma unroll 1
            for (int32_t missing = ptx::lane(); missing < kRows - rows; missing += 32) count(block);
    }

    /// Until copies of this warp may read the rows of a tile of gate and up. The tile, where they lie.
    DG_DEVICE Tile wait(Tile tile, int32_t block) const {
        wait_until(block, kRows);
        ptx::fence_memory_for_async_proxy();
        __syncwarp();  // nobody looks at the counter any more
        (c.up.swap_ab ? tile.col : tile.row) = first_row(block);
        return tile;
    }

    /// One warp of those that have waited for all copies of a tile.
    DG_DEVICE void read(int32_t block) const {
        if (ptx::lane() == 0) count(block);
    }

private:
    DG_DEVICE int32_t places() const { return params_.room_rows / kRows; }
    DG_DEVICE int32_t place(int32_t block) const { return block % places(); }
    DG_DEVICE uint32_t counts_of_block() const { return kRows + blocks_of_n<MoeLayerParts<c>::kUp>(params_.up); }

    DG_DEVICE void wait_until(int32_t block, uint32_t counted) const {
        const uint32_t wanted = block / places() * counts_of_block() + counted;
        while (ptx::load_acquire(params_.pulled + place(block)) < wanted) ptx::sleep_nanoseconds(20);
    }

    DG_DEVICE void count(int32_t block) const {
        const int32_t at = place(block), turns = (groups_.all_blocks() - at + places() - 1) / places();
        ptx::count_release(params_.pulled + at, turns * counts_of_block() - 1);
    }

    const MoeLayerRanksParams& params_;  // read anew: math warps have few registers
    GroupTable<MoeLayerParts<c>::kUp> groups_;
};

/// A row of a group's, the `at`th: in which block, the how manyth there, and how many that block has.
struct RowOfBlock {
    int32_t block, row, rows;

    template <Constant<GemmConfig> c>
    static DG_DEVICE RowOfBlock of(const GroupTable<c>& groups, int32_t index, int32_t at) {
        constexpr int32_t kRows = c.tile_m();
        const GroupEntry entry = groups.entry(index);
        const int32_t before = index > 0 ? groups.entry(index - 1).block_end : 0, row = at % kRows;
        return {before + at / kRows, row, min(kRows, entry.row_end - entry.row_begin - at + row)};
    }
};

/// Rows of experts here, by one of the warps of all CTAs that bring them, in the order in which tiles want them. What
/// the table of groups says is read again behind the copy, for which registers are needed.
template <Constant<MoeLayerConfig> c, Constant<GemmConfig> kUp>
DG_DEVICE void pull_rows_of_tiles(const GroupTable<kUp>& groups, const MoeLayerRanksParams& params, int32_t warp) {
    const PulledRows<c> pulled(params, groups);
    const int32_t lane = ptx::lane();
    int32_t at = warp * static_cast<int32_t>(gridDim.x) + static_cast<int32_t>(blockIdx.x), index = 0;
#pragma unroll 1
    for (;; at += static_cast<int32_t>(gridDim.x) * kPullWarps) {
        GroupEntry entry = groups.entry(index);
        while (entry.group >= 0 && at >= entry.row_end - entry.row_begin) {
            at -= entry.row_end - entry.row_begin;
            entry = groups.entry(++index);
        }
        if (entry.group < 0) return;
        const int32_t source = ptx::load_global_int(params.travel.source + entry.row_begin + at);
        const auto to = RowOfBlock::of(groups, index, at);
        pulled.wait_for_place(to.block);
        pull_row(params.travel, pulled.first_row(to.block) + to.row, source, lane);
        const auto brought = RowOfBlock::of(groups, index, at);
        pulled.brought(brought.block, brought.row, brought.rows);
    }
}

}  // namespace deep_gemm
