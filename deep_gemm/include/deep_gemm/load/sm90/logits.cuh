// The roles that load queries and keys of index logits: a warp each. Both walk the CTA's share.
#pragma once

#include <deep_gemm/arch/sm90_logits_smem.cuh>
#include <deep_gemm/logits/blocks.cuh>
#include <deep_gemm/logits/finish.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm90 {

/// Queries of an atom.
template <LogitsConfig c>
DG_DEVICE void copy_queries(const LogitsSmem<c>& smem, int32_t stage, int32_t first_row, const LogitsParams& p) {
    constexpr int32_t kProducts = c.products * c.row_groups(), kBytes = c.columns() * c.key_bytes();
    ptx::barrier_arrive_expect(smem.queries_full(stage), kBytes * kProducts);
#pragma unroll
    for (int32_t i = 0; i < kProducts; ++i)
        ptx::load_box(smem.queries(stage, i / c.products, i % c.products), &p.queries, smem.queries_full(stage), 0, 0,
                      first_row + i * c.rows, ptx::CacheHint::evict_first);
}

/// What math groups need of an atom beside that, by all lanes.
template <LogitsConfig c>
DG_DEVICE void write_atom(const LogitsSmem<c>& smem, int32_t stage, const LogitsSegment& segment, int32_t lane,
                          const LogitsParams& p) {
    const AtomRows rows = rows_of_atom<c>(segment.atom, p);
    const int32_t end = rows.first + rows.count;
    float* const weights = smem.weights(stage);
    constexpr int32_t kWeights = c.cta_rows() * c.padded_heads;
#pragma unroll 4
    for (int32_t i = lane; i < kWeights; i += 32)
        weights[i] = logits_weight<c>(rows.first + i / c.padded_heads, end, i % c.padded_heads, p);
    for (int32_t i = lane; i < c.cta_rows(); i += 32) {
        const int32_t row = rows.first + i;
        const KeyRange keys = row < end ? keys_of_row<c>(row, p) : KeyRange{};
        const int64_t place = row * p.logits_stride - (p.compressed ? keys.first : 0);
        smem.rows(stage)[i] = {reinterpret_cast<uint64_t>(p.logits) + bytes_of(c.logits, place), keys};
    }
    if (lane == 0) *smem.segment(stage) = make_int2(segment.first_key, segment.tiles);
}

/// Behind the last atom one of no tiles says that there are no more.
template <LogitsConfig c>
DG_DEVICE void load_atoms(const LogitsSmem<c>& smem, const LogitsShare& share, int32_t lane, const LogitsParams& p) {
    Ring<c.query_stages> ring;
    ShareWalk<c> walk(share);
    LogitsSegment segment;
    while (walk.next(segment, lane, p)) {
        ptx::barrier_wait(smem.queries_empty(ring.stage), ring.phase ^ 1);
        __syncwarp();
        if (lane == 0) copy_queries<c>(smem, ring.stage, rows_of_atom<c>(segment.atom, p).first, p);
        write_atom<c>(smem, ring.stage, segment, lane, p);
        ptx::barrier_arrive(smem.queries_full(ring.stage));
        ring.advance();
    }
    ptx::barrier_wait(smem.queries_empty(ring.stage), ring.phase ^ 1);
    if (lane == 0) *smem.segment(ring.stage) = make_int2(0, 0);
    if (lane == 0) ptx::barrier_arrive_expect(smem.queries_full(ring.stage), 0);
    ptx::barrier_arrive(smem.queries_full(ring.stage));
}

template <LogitsConfig c>
DG_DEVICE void load_keys(const LogitsSmem<c>& smem, const LogitsShare& share, int32_t lane, const LogitsParams& p) {
    // Keys of a tile that follow each other in memory.
    constexpr int32_t kRun = c.paged && c.block_keys < kLogitsTile ? c.block_keys : kLogitsTile;
    Ring<c.stages> ring;
    ShareWalk<c> walk(share);
    LogitsSegment segment;
    while (walk.next(segment, lane, p)) {
        KeyBlocks<c> blocks(segment, p);
#pragma unroll 1
        for (int32_t tile = 0; tile < segment.tiles; ++tile) {
            const int32_t first_key = segment.first_key + tile * kLogitsTile;
            const uint32_t full = smem.full(ring.stage);
            ptx::barrier_wait(smem.empty(ring.stage), ring.phase ^ 1);
            __syncwarp();  // before lane 0 fills the stage: a lane still waiting would miss the phase that it lets end
            if (lane == 0) ptx::barrier_arrive_expect(full, LogitsSmem<c>::kPlan.key_stage_bytes + kLogitsTile * 4);
#pragma unroll
            for (int32_t run = 0; run < kLogitsTile / kRun; ++run) {
                const KeyPlace place = blocks.place(first_key + run * kRun, lane, p);
                if (lane != 0) continue;
                ptx::load_box(smem.keys(ring.stage) + run * kRun * c.key_bytes(), &p.keys, full, 0, place.in_block,
                              place.block, ptx::CacheHint::normal);
                ptx::load_box(smem.scales(ring.stage) + run * kRun * 4, &p.scales, full, place.in_block, place.block, 0,
                              ptx::CacheHint::normal);
            }
            ring.advance();
        }
    }
}

}  // namespace deep_gemm::sm90
