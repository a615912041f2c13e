// What a CTA of grouped products does while the groups' sizes, which only the device knows, come from memory: it asks
// the L2 for the tile that it will likely begin with. What is asked for in vain, another CTA mostly begins with.
#pragma once

#include <deep_gemm/load/sm90/boxes.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/tile/likely_tile.cuh>

namespace deep_gemm {

/// One operand's share of a stage, as load_operand copies it.
template <int32_t kExtent, int32_t kSharers, bool kMnMajor>
DG_DEVICE void fetch_operand(const TensorMap& map, int32_t k, int32_t start, int32_t group, int32_t sharer) {
    constexpr int32_t kSlice = kExtent / kSharers;
    if constexpr (kMnMajor) {
#pragma unroll 1
        for (int32_t row = 0; row < kSlice; row += kMnBlock)
            ptx::prefetch_box(&map, start + sharer * kSlice + row, k, group);
    } else {
        ptx::prefetch_box(&map, k, start + sharer * kSlice, group);
    }
}

/// The tile's first K blocks. One thread.
template <Constant<GemmConfig> c>
DG_DEVICE void fetch_likely_tile(const GemmParams& params) {
    Tile tile;
    if (!likely_first_tile<c>(params, tile)) return;
    const ClusterPosition<c> position;
    const int32_t row_group = c.swap_ab ? group_of_b<c>(tile) : group_of_a<c>(tile),
                  col_group = c.swap_ab ? group_of_a<c>(tile) : group_of_b<c>(tile);
#pragma unroll 1
    for (int32_t block = 0; block < min(tile.k_blocks, likely_k_blocks(c)); ++block) {
        const int32_t k = block * c.tile.k;
        if constexpr (c.rows_operand().packed())
            ptx::prefetch_box(&params.rows, 0, block * packed_stage_lines(c),
                              row_group * packed_blocks(extent_n<c>(params)) + tile.row / kPackedRows);
        else
            fetch_operand<c.tile.rows, c.cluster.cols, c.rows_operand().mn_major()>(params.rows, k, tile.row, row_group,
                                                                                    position.col);
#pragma unroll
        for (int32_t span = 0; span < col_spans(c); ++span)
            fetch_operand<c.tile.cols, c.cluster.rows, c.cols_operand().mn_major()>(
                params.cols, k + span * span_k(c.cols_operand().element), tile.col, col_group, position.row);
        if constexpr (c.row_scales().per_row())
            ptx::prefetch_box(&params.row_scales, tile.row, scale_entry(c.row_scales(), block, c.tile.k), row_group);
        if constexpr (copies_col_scales(c))
            ptx::prefetch_box(&params.col_scales, tile.col, scale_entry(c.col_scales(), block, c.tile.k), col_group);
        if constexpr (c.rows_operand().has_zeros())
            ptx::prefetch_box(&params.zeros, tile.row, k_group(c.rows_operand().zeros_k, block, c.tile.k), row_group);
    }
    if constexpr (c.has_block_scales()) {
        const float* scales = params.block_scales + tile.group * params.block_scale_group_stride;
        const int32_t first = (c.swap_ab ? tile.row : tile.col) / kScaleBlockRows,
                      last = (extent_n<c>(params) - 1) / kScaleBlockRows;
        for (int32_t i = 0; i < scale_blocks(c.tile_n()); ++i)
            ptx::prefetch_l2(scales + min(first + i, last) * params.block_scale_stride);
    }
}

}  // namespace deep_gemm
