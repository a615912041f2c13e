// The role that loads queries and keys of index logits: a warp, of which one lane asks the copy engine, and all copy
// scales.
#pragma once

#include <deep_gemm/arch/sm90_logits_smem.cuh>
#include <deep_gemm/logits/blocks.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/cp_async.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm90 {

template <LogitsConfig c>
DG_DEVICE void load_queries(const LogitsSmem<c>& smem, const Ring<c.query_stages>& ring, int32_t atom,
                            const LogitsParams& p) {
    constexpr int32_t kBytes = c.columns() * c.key_bytes();
    const int32_t first = rows_of_atom<c>(atom, p).first;
    ptx::barrier_wait(smem.queries_empty(ring.stage), ring.phase ^ 1);
    ptx::barrier_arrive_expect(smem.queries_full(ring.stage), kBytes * c.products * c.row_groups());
#pragma unroll
    for (int32_t i = 0; i < c.products * c.row_groups(); ++i)
        ptx::load_box(smem.queries(ring.stage, i / c.products, i % c.products), &p.queries,
                      smem.queries_full(ring.stage), 0, 0, first + i * c.rows, ptx::CacheHint::evict_first);
}

template <LogitsConfig c>
DG_DEVICE void load_keys(const LogitsSmem<c>& smem, int32_t stage, int32_t first_key, KeyBlocks<c>& blocks,
                         int32_t lane, const LogitsParams& p) {
    // Keys of a tile that follow each other in memory.
    constexpr int32_t kRun = c.paged && c.block_keys < kLogitsTile ? c.block_keys : kLogitsTile;
    if (lane == 0) ptx::barrier_arrive_expect(smem.full(stage), LogitsSmem<c>::kPlan.key_stage_bytes);
#pragma unroll
    for (int32_t run = 0; run < kLogitsTile / kRun; ++run) {
        const int32_t key = first_key + run * kRun;
        const KeyPlace place = blocks.place(key, lane, p);
        if (lane == 0)
            ptx::load_box(smem.keys(stage) + run * kRun * c.key_bytes(), &p.keys, smem.full(stage), 0, place.in_block,
                          place.block, ptx::CacheHint::normal);
#pragma unroll
        for (int32_t i = 0; i < ceil_div(kRun, 32); ++i) {
            const int32_t at = lane + i * 32;
            const bool given = blocks.has_scale(place, key + at, p);
            ptx::copy_async<4>(smem.scales(stage) + (run * kRun + at) * 4,
                               blocks.scale(place, given ? at : 0, given, p), given ? 4 : 0);
        }
    }
    ptx::barrier_arrive_after_copies(smem.full(stage));
}

template <LogitsConfig c>
DG_DEVICE void load_for_logits(const LogitsSmem<c>& smem, const LogitsShare& share, int32_t lane,
                               const LogitsParams& p) {
    Ring<c.stages> ring;
    Ring<c.query_stages> query_ring;
    ShareWalk<c> walk(share);
    LogitsSegment segment;
    while (walk.next(segment, lane, p)) {
        if (lane == 0) load_queries<c>(smem, query_ring, segment.atom, p);
        query_ring.advance();
        KeyBlocks<c> blocks(segment, p);
#pragma unroll 1
        for (int32_t tile = 0; tile < segment.tiles; ++tile) {
            ptx::barrier_wait(smem.empty(ring.stage), ring.phase ^ 1);
            load_keys<c>(smem, ring.stage, segment.first_key + tile * kLogitsTile, blocks, lane, p);
            ring.advance();
        }
    }
}

}  // namespace deep_gemm::sm90
