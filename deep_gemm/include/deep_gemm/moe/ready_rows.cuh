// When rows that one product of a launch has written may be read by the other.
//
// Each block of rows has a counter in memory. Warps that have written their part of it count up, and so do CTAs that
// have seen that all parts are there: the last of these sets it to 0 again, so that the next launch finds it as this
// one did.
#pragma once

#include <deep_gemm/moe/config.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/count.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// Tiles side by side along N, those included that only fill up a cluster.
template <Constant<GemmConfig> product>
DG_DEVICE uint32_t blocks_of_n(const GemmParams& params) {
    return (extent_n<product>(params) + product.super_tile_n() - 1) / product.super_tile_n() * product.cluster_n();
}

template <Constant<MoeLayerConfig> c>
class ReadyRows {
public:
    DG_DEVICE explicit ReadyRows(const MoeLayerParams& params)
        : counters_(params.ready),
          parts_(blocks_of_n<MoeLayerParts<c>::kUp>(params.up) * c.up.sm90.math_warpgroups * 4),
          last_(parts_ + blocks_of_n<MoeLayerParts<c>::kDown>(params.down) - 1) {}

    /// One math warp has written what it has of a tile of `up`.
    DG_DEVICE void wrote(const Tile& tile) const {
        __syncwarp();  // all its lanes have
        if (ptx::lane() == 0) ptx::count_release(counter(tile), last_);
    }

    /// Until copies of this warp may read the rows of a tile of `down`, which lie where the tile does.
    DG_DEVICE const Tile& wait(const Tile& tile, int32_t) const {
        uint32_t* const of_rows = counter(tile);
        while (ptx::load_acquire(of_rows) < parts_) ptx::sleep_nanoseconds(20);
        ptx::fence_memory_for_async_proxy();
        __syncwarp();  // nobody looks at the counter any more
        if (ptx::lane() == 0) ptx::count_relaxed(of_rows, last_);
        return tile;
    }

private:
    DG_DEVICE uint32_t* counter(const Tile& tile) const {
        return counters_ + (c.up.swap_ab ? tile.col : tile.row) / c.up.tile_m();
    }

    uint32_t* counters_;
    uint32_t parts_, last_;
};

}  // namespace deep_gemm
