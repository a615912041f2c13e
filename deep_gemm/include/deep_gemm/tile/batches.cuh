// Batches of matrices of the same extents: a product for each, or the sum of all.
#pragma once

#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// Matrices one after the other, and the tiles of each as those of one matrix.
template <Constant<GemmConfig> c>
class BatchScheduler {
public:
    static constexpr bool kReadsTable = false;
    static constexpr bool kPlaced = false;

    DG_DEVICE BatchScheduler(const GemmParams& params, const GroupTable<c>&)
        : params_(params), raster_(params), next_(first_place<c>(params)) {}

    DG_DEVICE bool next(Tile& tile) {
        const int32_t tiles = static_cast<int32_t>(params_.group_tiles.divisor);
        if (next_ >= tiles * params_.num_groups) return false;
        tile.group = params_.group_tiles.quotient(next_);
        tile.m_end = extent_m<c>(params_);
        if constexpr (divides_k(c.grouping))
            take_part(tile);
        else
            raster_.share_k(tile);
        at_ = next_ - tile.group * tiles;
        next_ += gridDim.x / c.tile_ctas();
        return true;
    }

    DG_DEVICE void place(Tile& tile) const {
        raster_.place(tile, at_, (extent_m<c>(params_) + kBlockM - 1) / kBlockM, 0);
    }

private:
    static constexpr int32_t kBlockM = c.super_tile_m();
    static_assert(!divides_k(c.grouping) || c.cluster.k == 1, "parts of K are groups, which clusters do not split");

    /// The first parts have a K block more, where there are some left over.
    DG_DEVICE void take_part(Tile& tile) const {
        static_assert(Rasterizer<c>::kUnitBlocks == 1);
        const int32_t each = raster_.k_units / params_.num_groups, over = raster_.k_units - each * params_.num_groups;
        tile.k_block = tile.group * each + min(tile.group, over);
        tile.k_blocks = each + (tile.group < over ? 1 : 0);
    }

    const GemmParams& params_;
    Rasterizer<c> raster_;
    int32_t next_, at_ = 0;
};

template <Constant<GemmConfig> c, typename Deal>
class TileScheduler<c, Deal, Grouping::batched, false> : public BatchScheduler<c> {
    using BatchScheduler<c>::BatchScheduler;
};
template <Constant<GemmConfig> c, typename Deal>
class TileScheduler<c, Deal, Grouping::batch_sum, false> : public BatchScheduler<c> {
    using BatchScheduler<c>::BatchScheduler;
};

/// Where a K block begins, and in which matrix of the tile's group.
struct BlockPlace {
    int32_t k, matrix;
};

template <Constant<GemmConfig> c>
DG_DEVICE BlockPlace place_block(const GemmParams& params, int32_t block) {
    if constexpr (c.grouping != Grouping::batch_sum) return {block * c.tile.k, 0};
    const int32_t matrix = params.matrix_blocks.quotient(block);
    return {(block - matrix * static_cast<int32_t>(params.matrix_blocks.divisor)) * c.tile.k, matrix};
}

}  // namespace deep_gemm
