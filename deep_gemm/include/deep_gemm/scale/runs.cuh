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

/// Parts of B that a tile's rows of it come from.
constexpr int32_t scale_parts(const GemmConfig& c) { return c.gate.joins_halves() ? 2 : 1; }

/// Rows or columns of a tile that are of one part of the side that has block scales.
constexpr int32_t scale_extent(const GemmConfig& c) {
    return (c.row_scales().per_block() ? c.tile.rows : c.tile.cols) / scale_parts(c);
}

/// Block scales of one stage, one for each run, of the side that has them: part by part.
constexpr int32_t block_scale_values(const GemmConfig& c) {
    return c.has_block_scales() ? scale_parts(c) * (scale_extent(c) / scale_run(scale_extent(c))) : 0;
}

/// The run, of so many, of a column in the tile.
constexpr int32_t run_of_col(const GemmConfig& c, int32_t runs, int32_t col) {
    if (!c.gate.joins_halves()) return col / (c.tile.cols / runs);
    const int32_t half = c.tile.cols / 2, of_half = runs / 2;
    return of_half == 0 ? 0
                        : c.gate.row_of_b(col, c.tile.cols) / half * of_half +
                              c.gate.row_of_b(col, c.tile.cols) % half / (half / of_half);
}

}  // namespace deep_gemm
