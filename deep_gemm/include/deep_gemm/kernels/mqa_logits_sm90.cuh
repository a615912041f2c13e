// Index logits on Hopper: a persistent grid of warp-specialised CTAs.
//
//   warps                         role
//   math warpgroups               wait for a tile of keys, multiply it by queries, finish and store logits; where there
//                                 are exponents, convert keys to BF16 first
//   last warpgroup, first warps   load keys and their scales, a tile in turn
//   its next warp                 load queries (or convert them), weights, and what rows see, an atom ahead
//   its other warps               write -inf where logits are cleaned
#pragma once

#include <deep_gemm/load/sm90/logits.cuh>
#include <deep_gemm/load/sm90/logits_queries.cuh>
#include <deep_gemm/mma/sm90/logits.cuh>

namespace deep_gemm {

namespace sm90 {

/// By one lane of each warp that multiplies: a lane after the other of one warp would take some 60 cycles a barrier.
template <Constant<LogitsConfig> c>
DG_DEVICE void initialise_logits_barriers(const LogitsSmem<c>& smem, int32_t warp) {
    constexpr int32_t kMathWarps = c.math_groups * 4, kTileWarps = c.shares_keys ? kMathWarps : 4;
#pragma unroll
    for (int32_t first = 0; first < c.stages; first += kMathWarps) {
        const int32_t stage = first + warp;
        if (stage >= c.stages) continue;
        ptx::barrier_init(smem.full(stage), 1);
        ptx::barrier_init(smem.empty(stage), kTileWarps);
    }
    static_assert(c.query_stages <= kMathWarps);
    if (const int32_t stage = kMathWarps - 1 - warp; stage < c.query_stages) {
        ptx::barrier_init(smem.queries_full(stage), 1 + 32);  // the copy's, and each lane's of the warp that writes
        ptx::barrier_init(smem.queries_empty(stage), kMathWarps);
    }
    ptx::fence_barrier_init();
}

}  // namespace sm90

template <Constant<LogitsConfig> c>
DG_DEVICE void run_mqa_logits_sm90(const LogitsParams& params) {
    using namespace sm90;
    extern __shared__ uint8_t dynamic_smem[];
    const LogitsSmem<c> smem(dynamic_smem);
    const int32_t warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0),
                  warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0), lane = ptx::lane();
    constexpr int32_t kKeyLoaders = key_loaders(c), kLoaders = kKeyLoaders + 1, kCleaners = 4 - kLoaders;
    const bool loads = warpgroup == c.math_groups;
    // Warps that load deal meanwhile.
    if (!loads && ptx::elect_one()) initialise_logits_barriers<c>(smem, warpgroup * 4 + warp);
    if (loads && warp == kLoaders && lane == 0) {
        ptx::prefetch_tensor_map(&params.queries), ptx::prefetch_tensor_map(&params.keys);
        ptx::prefetch_tensor_map(&params.scales);
    }
    __syncwarp();
    ptx::wait_for_previous_grid();
    const LogitsShare share = share_of_cta<c, logits_threads(c)>(smem.share(), loads && warp < kLoaders, params);
    if (loads) {
        ptx::give_registers<kLogitsLoadRegisters>();
        if (warp < kKeyLoaders)
            load_keys<c>(smem, share, warp, lane, params);
        else if (warp == kKeyLoaders)
            load_atoms<c, !c.exponents>(smem, share, lane, params, [&](int32_t stage, const AtomRows& rows) {
                if constexpr (c.exponents) convert_queries<c>(smem, stage, rows, lane, params);
            });
        else if (params.cleaned)
            clean_logits<c>(static_cast<int32_t>(blockIdx.x) * kCleaners + warp - kLoaders,
                            static_cast<int32_t>(gridDim.x) * kCleaners, lane, params);
    } else {
        ptx::take_registers<math_registers(c)>();
        ScoreRole<c>(smem, params, warpgroup).run();
    }
}

}  // namespace deep_gemm
