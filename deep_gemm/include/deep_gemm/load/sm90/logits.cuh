// The role that loads keys of index logits: a warp, or several that take tiles in turn.
#pragma once

#include <deep_gemm/arch/sm90_logits_smem.cuh>
#include <deep_gemm/load/logits_atoms.cuh>
#include <deep_gemm/logits/blocks.cuh>

namespace deep_gemm::sm90 {

template <Constant<LogitsConfig> c>
DG_DEVICE void load_keys(const LogitsSmem<c>& smem, const LogitsShare& share, int32_t loader, int32_t lane,
                         const LogitsParams& p) {
    constexpr int32_t kLoaders = key_loaders(c);
    static_assert(c.stages % kLoaders == 0, "a stage belongs to one loader");
    // Keys of a tile that follow each other in memory.
    constexpr int32_t kRun = c.paged && c.block_keys < kLogitsTile ? c.block_keys : kLogitsTile;
    Ring<c.stages> ring;
    ring.advance(loader);
    int32_t turn = 0;  // whose the next tile is
    ShareWalk<c> walk(share);
    LogitsSegment segment;
    while (walk.next(segment, lane, p)) {
        KeyBlocks<c> blocks(segment, p);
#pragma unroll 1
        for (int32_t tile = (loader - turn + kLoaders) % kLoaders; tile < segment.tiles; tile += kLoaders) {
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
            ring.advance(kLoaders);
        }
        turn = (turn + segment.tiles) % kLoaders;
    }
}

}  // namespace deep_gemm::sm90
