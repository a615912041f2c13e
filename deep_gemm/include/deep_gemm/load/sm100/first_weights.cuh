// What a CTA of SM100 does until the preceding kernel has ended: it asks the L2 for the weights that it will read
// first. Whoever writes them, nothing of them is read yet: a line that was fetched too early is written where it lies.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/scale/words.cuh>
#include <deep_gemm/tile/batches.cuh>
#include <deep_gemm/tile/likely_tile.cuh>

namespace deep_gemm::sm100 {

/// Whether B is weights, which mostly lie there long before: not where groups divide K, as in gradients. Nor where a
/// map has gates and ups.
constexpr bool fetches_first_weights(const GemmConfig& c) { return !divides_k(c.grouping) && !c.gate.joins(); }

/// The tile that this CTA begins with, by nothing that a preceding kernel may write; false if there is none. Of groups
/// it is the likely one.
template <Constant<GemmConfig> c>
DG_DEVICE bool first_tile(const Smem<c>& smem, const GemmParams& params, Tile& tile) {
    if constexpr (has_fixed_extents(c.grouping)) {
        TileScheduler<c> tiles(params, smem.groups());
        if (!tiles.next(tile)) return false;
        tiles.place(tile);
        return true;
    } else {
        return likely_first_tile<c>(params, tile);
    }
}

/// Boxes of one K block, as load_operand copies them; of packed weights `group` is its first block of rows.
template <Constant<GemmConfig> c, int32_t kExtent>
DG_DEVICE void fetch_weights(const TensorMap& map, int32_t k, int32_t start, int32_t group) {
    if constexpr (converts(c))
        return ptx::prefetch_box(&map, 0, k / kPackedK * packed_lines(c.b.element), group + start / kPackedRows);
    constexpr int32_t kBox = c.b.mn_major() ? block_rows(c.b.element) : kExtent;
#pragma unroll
    for (int32_t row = start; row < start + kExtent; row += kBox)
        ptx::prefetch_box(&map, c.b.mn_major() ? row : k, c.b.mn_major() ? k : row, group);
}

/// Boxes of one word, or of as many as a K block has, as load_words copies them.
template <Constant<GemmConfig> c, int32_t kExtent>
DG_DEVICE void fetch_words(const TensorMap& map, int32_t word, int32_t start, int32_t group, int32_t group_rows) {
    if constexpr (b_in_blocks(c)) {
        const int32_t first = group * scale_blocks(group_rows) + start / kScaleRows;
#pragma unroll
        for (int32_t block = 0; block < scale_blocks(kExtent); ++block) ptx::prefetch_box(&map, 0, word, first + block);
    } else {
        ptx::prefetch_box(&map, start, word, group);
    }
}

/// As many K blocks as there are stages. One thread.
template <Constant<GemmConfig> c>
DG_DEVICE void fetch_first_weights(const Smem<c>& smem, const GemmParams& params) {
    Tile tile;
    if (!first_tile<c>(smem, params, tile)) return;
    constexpr int32_t kExtent = c.swap_ab ? kRows : own_cols(c);
    const int32_t col = tile.col + ClusterPosition<c>().row * own_cols(c), group = group_of_b<c>(tile);
    const int32_t first = converts(c) ? group * packed_blocks(extent_n<c>(params)) : group;
    const int32_t end = tile.k_block + min(tile.k_blocks, c.stages);
#pragma unroll 1
    for (int32_t block = tile.k_block; block < end; ++block)
        fetch_weights<c, kExtent>(c.swap_ab ? params.rows : params.cols, block * c.tile.k, c.swap_ab ? tile.row : col,
                                  first);
    if constexpr (scales_in_instruction(c)) {
        constexpr int32_t kBlocks = blocks_per_word(c, c.b.scaling);
        const int32_t last = (end - 1) / kBlocks;
#pragma unroll 1
        for (int32_t box = tile.k_block / kBlocks; box <= last; ++box)
            fetch_words<c, c.swap_ab ? kRows : c.tile.cols>(c.swap_ab ? params.row_scales : params.col_scales,
                                                            box * block_words(c), c.swap_ab ? tile.row : tile.col,
                                                            group, extent_n<c>(params));
    }
}

}  // namespace deep_gemm::sm100
