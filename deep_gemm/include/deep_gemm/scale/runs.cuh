// Scales of 128-row blocks, seen from a tile: rows or columns that share one follow each other in runs.
#pragma once

#include <deep_gemm/config.cuh>

namespace deep_gemm {

/// Rows or columns of a tile that share a 128x128 block's scale wherever a multiple of the tile's extent starts.
constexpr int32_t scale_run(int32_t extent) { return gcd(extent, kScaleBlockRows); }

/// 128-blocks that the tile can touch.
constexpr int32_t scale_blocks(int32_t extent) {
    return (kScaleBlockRows - scale_run(extent) + extent - 1) / kScaleBlockRows + 1;
}

/// Block scales of one stage, one for each run, of the side that has them.
constexpr int32_t block_scale_values(const GemmConfig& c) {
    if (!c.has_block_scales()) return 0;
    const int32_t extent = c.row_scales().per_block() ? c.tile.rows : c.tile.cols;
    return extent / scale_run(extent);
}

}  // namespace deep_gemm
