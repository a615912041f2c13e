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

/// Parts of B that a tile's scales of it come from.
constexpr int32_t scale_parts(const GemmConfig& c) {
    return c.gate.joins_halves() || (c.b.scaling.per_block() && c.gate.blocks_in_halves()) ? 2 : 1;
}

/// FP32 scales, or words, that a tile of `extent` rows of B has room for, where each row has some. They lie in B's
/// order (Gated::row_of_b), of halves those of gates and from a multiple of 128 bytes on those of ups.
constexpr int32_t scale_places(const GemmConfig& c, int32_t extent) {
    return scale_parts(c) * align_up(extent / scale_parts(c) + c.gate.first_up(), scale_parts(c) > 1 ? 32 : 1);
}

/// Of scales in halves, those of gates, or of ups, that a box brings: ups' may begin before the first one.
constexpr int32_t half_box(const GemmConfig& c, int32_t extent) {
    return extent / 2 + (c.gate.first_up() != 0 ? kGateCols / 2 : 0);
}
/// Scales of `extent` rows or columns that boxes bring. `of_b`: of B's rows.
constexpr int32_t copied_scales(const GemmConfig& c, int32_t extent, bool of_b) {
    return of_b && c.gate.joins_halves() ? 2 * half_box(c, extent) : extent;
}

/// Places of scales that a tile's rows, or its columns, have some of each: more than these are where B's come in parts.
constexpr int32_t row_scale_places(const GemmConfig& c) {
    return c.swap_ab ? scale_places(c, c.tile.rows) : c.tile.rows;
}
constexpr int32_t col_scale_places(const GemmConfig& c) {
    return c.swap_ab ? c.tile.cols : scale_places(c, c.tile.cols);
}

#if defined(__CUDACC__)
/// copy(offset in bytes, first row of B, entry) of each box of so many entries of such scales, of halves. `start`: the
/// tile's first row or column.
template <Constant<GemmConfig> c, int32_t kExtent, int32_t kEntries, typename Copy>
DG_DEVICE void for_each_half_of_scales(int32_t start, int32_t n, const Copy& copy) {
    static_assert(c.gate.joins_halves());
    constexpr int32_t kHalf = scale_places(c, kExtent) / 2;
#pragma unroll
    for (int32_t entry = 0; entry < kEntries; ++entry)
#pragma unroll
        for (int32_t part = 0; part < 2; ++part)
            copy((entry * 2 + part) * kHalf * 4, start / 2 + part * (n / 2 - c.gate.first_up()), entry);
}
#endif

/// Rows or columns of a tile that are of one part of the side that has block scales.
constexpr int32_t scale_extent(const GemmConfig& c) {
    return (c.row_scales().per_block() ? c.tile.rows : c.tile.cols) / scale_parts(c);
}

/// Block scales of one stage, one for each run, of the side that has them: part by part.
constexpr int32_t block_scale_values(const GemmConfig& c) {
    return c.has_block_scales() ? scale_parts(c) * (scale_extent(c) / scale_run(scale_extent(c))) : 0;
}

/// The run, of so many, of a column among so many of a tile, whose scales come from so many parts of B. (Numbers, not
/// the config: where many sums ask, the compiler gives up reading that at compile time.)
constexpr int32_t run_of_col(int32_t parts, int32_t cols, int32_t runs, int32_t col) {
    if (parts == 1) return col / (cols / runs);
    const int32_t half = cols / 2, of_half = runs / 2, place = Gated::in_halves(col, cols);
    return of_half == 0 ? 0 : place / half * of_half + place % half / (half / of_half);
}

}  // namespace deep_gemm
