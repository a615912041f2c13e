// The role that brings words of exponents into the order of tensor memory.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/scale/words.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm100 {

/// 128 words of consecutive rows become 32 lines of four: row r goes to line r % 32, place r / 32.
DG_DEVICE void transpose_words(uint32_t words) {
    const int32_t lane = ptx::lane();
    int32_t mine[4];
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) mine[i] = ptx::load_shared_int(words + (32 * i + lane) * 4);
    __syncwarp();
    ptx::store_shared_int_x4(words + lane * 16, mine[0], mine[1], mine[2], mine[3]);
}

/// One warp of each CTA: every stage passes through its hands, and those with new words are worked on.
template <GemmConfig c>
DG_DEVICE void transpose_role(const Smem<c>& smem, const GemmParams& params) {
    constexpr int32_t kRowBlocks = blocks_per_word(c, c.row_scales()), kColBlocks = blocks_per_word(c, c.col_scales());
    const ClusterPosition<c> position;
    const uint32_t leader = ClusterPosition<c>::rank(0, position.col, position.k);
    TileScheduler<c> tiles(params, smem.groups());
    Ring<c.stages> ring;
    Tile tile;
    while (tiles.next(tile)) {
        const int32_t end = tile.k_block + tile.k_blocks;
#pragma unroll 1
        for (int32_t block = tile.k_block; block < end; ++block, ring.advance()) {
            ptx::barrier_wait(smem.full(ring.stage), ring.phase);
            if (!c.sm100.row_blocks && begins_word<c, kRowBlocks>(tile, block))
                transpose_words(smem.row_scales(ring.stage));
            if (!c.sm100.col_blocks && begins_word<c, kColBlocks>(tile, block)) {
#pragma unroll
                for (int32_t i = 0; i < scale_blocks(c.tile.cols); ++i)
                    transpose_words(smem.col_scales(ring.stage) + i * kScaleBlockBytes);
            }
            // The words stay in this CTA, and are fenced for its own copies to tensor memory. The arrival tells the
            // leader no more than that it may issue them.
            ptx::fence_for_async_proxy();
            __syncwarp();
            if (ptx::lane() == 0) {
                if constexpr (mma_ctas(c) > 1)
                    ptx::barrier_arrive_remote(smem.ready(ring.stage), leader);
                else
                    ptx::barrier_arrive(smem.ready(ring.stage));
            }
        }
    }
}

}  // namespace deep_gemm::sm100
