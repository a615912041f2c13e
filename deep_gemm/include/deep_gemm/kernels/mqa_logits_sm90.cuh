// Index logits on Hopper: a persistent grid of warp-specialised CTAs.
//
//   warps                     role
//   math warpgroups           wait for a tile of keys, multiply it by queries, finish and store logits
//   last warpgroup, warp 0    load queries and keys
//   its other warps           write -inf where logits are cleaned
#pragma once

#include <deep_gemm/load/sm90/logits.cuh>
#include <deep_gemm/mma/sm90/logits.cuh>

namespace deep_gemm {

namespace sm90 {

template <LogitsConfig c>
DG_DEVICE void initialise_logits_barriers(const LogitsSmem<c>& smem) {
    constexpr int32_t kMathWarps = kLogitsMathWarpgroups * 4, kTileWarps = c.shares_keys ? kMathWarps : 4;
    for (int32_t stage = 0; stage < c.stages; ++stage) {
        ptx::barrier_init(smem.full(stage), 1 + 32);  // the copy engine's, and each lane's of the warp that loads
        ptx::barrier_init(smem.empty(stage), kTileWarps);
    }
    for (int32_t stage = 0; stage < c.query_stages; ++stage) {
        ptx::barrier_init(smem.queries_full(stage), 1);
        ptx::barrier_init(smem.queries_empty(stage), kMathWarps);
    }
    ptx::fence_barrier_init();
}

}  // namespace sm90

template <LogitsConfig c>
DG_DEVICE void run_mqa_logits_sm90(const LogitsParams& params) {
    using namespace sm90;
    extern __shared__ uint8_t dynamic_smem[];
    const LogitsSmem<c> smem(dynamic_smem);
    const int32_t warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0),
                  warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0), lane = ptx::lane();
    if (warpgroup == kLogitsMathWarpgroups && warp == 0 && ptx::elect_one()) {
        ptx::prefetch_tensor_map(&params.queries), ptx::prefetch_tensor_map(&params.keys);
        initialise_logits_barriers<c>(smem);
    }
    ptx::wait_for_previous_grid();
    const LogitsShare share = share_of_cta<c, kLogitsThreads>(smem.share(), params);
    if (warpgroup == kLogitsMathWarpgroups) {
        ptx::give_registers<56>();
        constexpr int32_t kCleaners = 3;
        if (warp == 0)
            load_for_logits<c>(smem, share, lane, params);
        else if (params.cleaned)
            clean_logits<c>(static_cast<int32_t>(blockIdx.x) * kCleaners + warp - 1,
                            static_cast<int32_t>(gridDim.x) * kCleaners, lane, params);
    } else {
        ptx::take_registers<224>();
        ScoreRole<c>(smem, params, warpgroup).run(share);
    }
}

}  // namespace deep_gemm
