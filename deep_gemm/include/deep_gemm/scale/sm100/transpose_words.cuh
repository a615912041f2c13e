// The role that brings words of scales into the order of tensor memory.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/scale/words.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm100 {

/// 128 words of consecutive rows become 32 lines of four: row r goes to line r % 32, place r / 32. Of their bits those
/// of `kept` stay.
DG_DEVICE void transpose_words(uint32_t words, int32_t kept = -1) {
    const int32_t lane = ptx::lane();
    int32_t mine[4];
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) mine[i] = ptx::load_shared_int(words + (32 * i + lane) * 4) & kept;
    __syncwarp();
    ptx::store_shared_int_x4(words + lane * 16, mine[0], mine[1], mine[2], mine[3]);
}

/// The same of so many blocks of B's rows where tiles have gates and ups: words `from` there lie in B's order.
template <Constant<GemmConfig> c, int32_t kBlocks>
DG_DEVICE void transpose_gated_words(uint32_t from, uint32_t words, int32_t kept) {
    constexpr int32_t kPlaces = scale_places(c, kBlocks * kScaleRows);
    const int32_t lane = ptx::lane();
    int32_t mine[kBlocks][4];
#pragma unroll
    for (int32_t i = 0; i < kBlocks * 4; ++i)
        mine[i / 4][i % 4] = ptx::load_shared_int(from + c.gate.place_of_scale(32 * i + lane, kPlaces) * 4) & kept;
    __syncwarp();
#pragma unroll
    for (int32_t i = 0; i < kBlocks; ++i)
        ptx::store_shared_int_x4(words + i * kScaleBlockBytes + lane * 16, mine[i][0], mine[i][1], mine[i][2],
                                 mine[i][3]);
}

/// Of a stage's words the `word`th of each row. Those of halves may have more room than what they become, which never
/// reaches the next one's.
template <Constant<GemmConfig> c, int32_t kBlocks, bool kOfB>
DG_DEVICE void transpose_words_of(uint32_t words, int32_t word = 0, int32_t kept = -1) {
    const uint32_t to = words + word_offset(false, kBlocks, 0, 0, word);
    if constexpr (kOfB && c.gate.joins()) {
        transpose_gated_words<c, kBlocks>(words + word * word_places(c, kBlocks, kOfB) * 4, to, kept);
    } else {
#pragma unroll
        for (int32_t i = 0; i < kBlocks; ++i) transpose_words(to + i * kScaleBlockBytes, kept);
    }
}

/// The words that a K block has of `kBlocks` blocks of rows, where it has several. A step takes several scales of a
/// word at once, of which the last ones may lie behind the end of K and be NaN, which zeros do not make harmless: they
/// become zero. `k`: from the block's first element to that end.
template <Constant<GemmConfig> c, Constant<Scaling> kScaling, int32_t kBlocks, bool kOfB>
DG_DEVICE void transpose_block_words(uint32_t words, int32_t k) {
#pragma unroll
    for (int32_t word = 0; word < block_words(c); ++word) {
        const int32_t scales = (k - word * word_k(kScaling) + kScaling.k - 1) / kScaling.k,
                      behind = min(max(kScalesPerWord - scales, 0), kScalesPerWord);
        const auto kept = static_cast<int32_t>(uint64_t{0xffffffff} >> 8 * behind);
        transpose_words_of<c, kBlocks, kOfB>(words, word, kept);
    }
}

/// One warp of each CTA: every stage passes through its hands, and those with new words are worked on.
template <Constant<GemmConfig> c>
DG_DEVICE void transpose_role(const Smem<c>& smem, const GemmParams& params) {
    constexpr int32_t kRowBlocks = blocks_per_word(c, c.row_scales()), kColBlocks = blocks_per_word(c, c.col_scales());
    const ClusterPosition<c> position;
    const uint32_t leader = ClusterPosition<c>::rank(0, position.col, position.k);
    TileScheduler<c> tiles(params, smem.groups());
    Ring<c.stages> ring;
    Tile tile;
    while (tiles.next(tile)) {
        const int32_t end = tile.k_block + tile.k_blocks;
        const int32_t k_end = has_several_words(c) ? end_of_k<c>(tile, smem.groups(), params) : 0;
#pragma unroll 1
        for (int32_t block = tile.k_block; block < end; ++block, ring.advance()) {
            ptx::barrier_wait(smem.full(ring.stage), ring.phase);
            if constexpr (has_several_words(c)) {
                const int32_t k = k_end - block * c.tile.k;
                if (!c.sm100.row_blocks)
                    transpose_block_words<c, ConfigParts<c>::kRowScales, 1, c.swap_ab>(smem.row_scales(ring.stage), k);
                if (!c.sm100.col_blocks)
                    transpose_block_words<c, ConfigParts<c>::kColScales, scale_blocks(c.tile.cols), !c.swap_ab>(
                        smem.col_scales(ring.stage), k);
            }
            if (!has_several_words(c) && !c.sm100.row_blocks && begins_word<c, kRowBlocks>(tile, block))
                transpose_words_of<c, 1, c.swap_ab>(smem.row_scales(ring.stage));
            if (!has_several_words(c) && !c.sm100.col_blocks && begins_word<c, kColBlocks>(tile, block))
                transpose_words_of<c, scale_blocks(c.tile.cols), !c.swap_ab>(smem.col_scales(ring.stage));
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
