// The roles that bring keys of index logits, and words of exponents into the order of tensor memory.
#pragma once

#include <deep_gemm/arch/sm100_logits_smem.cuh>
#include <deep_gemm/load/logits_atoms.cuh>
#include <deep_gemm/logits/blocks.cuh>
#include <deep_gemm/scale/sm100/transpose_words.cuh>

namespace deep_gemm::sm100 {

/// Tiles that a product has of a segment, of which so many are done.
DG_DEVICE int32_t tiles_of_product(int32_t tiles, int32_t done) { return min(kLogitsKeyTiles, tiles - done); }

/// Keys of a product, with their words. Where the segment ends within them, the rest of the stage is left as it is:
/// rows of a product do not mix, and those logits are none of this CTA's.
template <Constant<LogitsConfig> c>
DG_DEVICE void load_keys(const LogitsSmem<c>& smem, const LogitsShare& share, int32_t lane, const LogitsParams& p) {
    // Keys that follow each other in memory.
    constexpr int32_t kRun = c.paged && c.block_keys < kLogitsTile ? c.block_keys : kLogitsTile;
    Ring<c.stages> ring;
    ShareWalk<c> walk(share);
    LogitsSegment segment;
    while (walk.next(segment, lane, p)) {
        KeyBlocks<c> blocks(segment, p);
#pragma unroll 1
        for (int32_t done = 0; done < segment.tiles; done += kLogitsKeyTiles, ring.advance()) {
            const int32_t first_key = segment.first_key + done * kLogitsTile,
                          keys = tiles_of_product(segment.tiles, done) * kLogitsTile;
            const uint32_t full = smem.full(ring.stage);
            ptx::barrier_wait(smem.empty(ring.stage), ring.phase ^ 1);
            __syncwarp();  // before lane 0 fills the stage: a lane still waiting would miss the phase that it lets end
            if (lane == 0) ptx::barrier_arrive_expect(full, keys * (c.key_bytes() + 4));
#pragma unroll
            for (int32_t at = 0; at < kLogitsKeys; at += kRun) {
                if (at >= keys) break;
                const KeyPlace place = blocks.place(first_key + at, lane, p);
                if (lane != 0) continue;
                ptx::load_box(smem.keys(ring.stage) + at * c.key_bytes(), &p.keys, full, 0, place.in_block, place.block,
                              ptx::CacheHint::normal);
                ptx::load_box(smem.key_words(ring.stage) + at * 4, &p.scales, full, place.in_block, place.block, 0,
                              ptx::CacheHint::normal);
            }
        }
    }
}

/// Words of exponents of each stage of keys, by one warp.
template <Constant<LogitsConfig> c>
DG_DEVICE void transpose_key_words(const LogitsSmem<c>& smem, const LogitsShare& share, int32_t lane,
                                   const LogitsParams& p) {
    Ring<c.stages> ring;
    ShareWalk<c> walk(share);
    LogitsSegment segment;
    while (walk.next(segment, lane, p))
#pragma unroll 1
        for (int32_t done = 0; done < segment.tiles; done += kLogitsKeyTiles, ring.advance()) {
            ptx::barrier_wait(smem.full(ring.stage), ring.phase);
            transpose_words(smem.key_words(ring.stage));
            ptx::fence_for_async_proxy();
            __syncwarp();
            if (lane == 0) ptx::barrier_arrive(smem.ready(ring.stage));
        }
}

/// Words of exponents of an atom's heads, where tensor memory's copies find them. Of rows and heads that do not exist
/// they are 0, which is a power of two.
template <Constant<LogitsConfig> c>
DG_DEVICE void write_query_words(const LogitsSmem<c>& smem, int32_t stage, const AtomRows& rows, int32_t lane,
                                 const LogitsParams& p) {
#pragma unroll 2
    for (int32_t column = lane; column < scale_blocks(c.columns()) * kScaleRows; column += 32) {
        const int32_t row = column / c.padded_heads, head = column % c.padded_heads;
        const bool exists = row < rows.count && head < c.heads;
        const int64_t at = static_cast<int64_t>(rows.first + row) * c.heads + head;
        ptx::store_shared_int(smem.query_words(stage) + column / kScaleRows * kScaleBlockBytes + column % 32 * 16 +
                                  column % kScaleRows / 32 * 4,
                              exists ? p.query_exponents[at] : 0);
    }
    ptx::fence_for_async_proxy();
}

}  // namespace deep_gemm::sm100
