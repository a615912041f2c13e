// What all copies of a stage ask of a tile: matrices of its group, and where its scales lie along K.
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/scale/words.cuh>
#include <deep_gemm/tile/batches.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm80 {

template <Constant<GemmConfig> c>
DG_DEVICE int32_t row_group(const Tile& tile) {
    return c.swap_ab ? group_of_b<c>(tile) : group_of_a<c>(tile);
}
template <Constant<GemmConfig> c>
DG_DEVICE int32_t col_group(const Tile& tile) {
    return c.swap_ab ? group_of_a<c>(tile) : group_of_b<c>(tile);
}

/// The first entry along K of an operand's scales that a K block has. No word is of two groups of K.
template <Constant<GemmConfig> c, Constant<Scaling> scaling, typename Groups>
DG_DEVICE int32_t scale_place(const Tile& tile, int32_t block, const Groups& groups, const GemmParams& params) {
    if constexpr (scaling.in_instruction())
        return word_of<c, blocks_per_word(c, scaling), words_per_block(scaling, c.tile.k)>(tile, block, groups, params);
    else
        return scale_entry(scaling, block, c.tile.k);
}

}  // namespace deep_gemm::sm80
