// Words of scales: which of them a K block reads, and when a new one comes.
#pragma once

#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// The K block that words are counted from.
template <Constant<GemmConfig> c>
DG_DEVICE int32_t words_origin(const Tile& tile) {
    return divides_k(c.grouping) ? tile.k_block : 0;
}

/// Whether a tile's K block is the first one to read its word. (`kBlocks` share it.)
template <Constant<GemmConfig> c, int32_t kBlocks>
DG_DEVICE bool begins_word(const Tile& tile, int32_t block) {
    return kBlocks == 1 || block == tile.k_block || (block - words_origin<c>(tile)) % kBlocks == 0;
}

/// Which word that is, in the operand's; or the first one of those that a block has (kWords).
template <Constant<GemmConfig> c, int32_t kBlocks, int32_t kWords, typename Groups>
DG_DEVICE int32_t word_of(const Tile& tile, int32_t block, const Groups& groups, const GemmParams& params) {
    if constexpr (c.grouping == Grouping::k_contiguous && (kBlocks > 1 || kWords > 1))
        return groups.first_word(tile.group - params.first_group) + (block - tile.k_block) / kBlocks * kWords;
    else
        return block / kBlocks * kWords;
}

/// Where the tile's K ends, counted as its blocks are.
template <Constant<GemmConfig> c, typename Groups>
DG_DEVICE int32_t end_of_k(const Tile& tile, const Groups& groups, const GemmParams& params) {
    if constexpr (c.grouping == Grouping::k_contiguous)
        return tile.k_block * c.tile.k + groups.k(tile.group - params.first_group);
    else
        return params.k;
}

}  // namespace deep_gemm
