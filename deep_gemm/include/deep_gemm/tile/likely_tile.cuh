// The tile that a CTA of grouped products likely begins with, before anybody knows the groups' sizes.
#pragma once

#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// The tile that this CTA begins with if all groups have as many rows as the host expects; false if there is none then.
template <Constant<GemmConfig> c>
DG_DEVICE bool likely_first_tile(const GemmParams& params, Tile& tile) {
    const Rasterizer<c> raster(params);
    const int32_t blocks = params.likely_blocks, group_tiles = blocks * raster.n_blocks, first = first_place<c>(params);
    tile.group = first / group_tiles;
    if (tile.group >= params.num_groups) return false;
    raster.share_k(tile);
    const int32_t m_start = c.grouping == Grouping::masked ? 0 : tile.group * blocks * c.tile_m();
    raster.place(tile, first - tile.group * group_tiles, blocks, m_start);
    return true;
}

}  // namespace deep_gemm
