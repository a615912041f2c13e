// Index logits on Blackwell: a persistent grid of warp-specialised CTAs.
//
//   warps                     role
//   two warpgroups            read sums of 128 keys from tensor memory, finish and store logits, each of every other
//                             product
//   third one, warp 0         load keys and their words
//     warp 1                  load queries, weights, and what rows see, an atom ahead
//     warp 2                  multiply (one lane); first initialise the barriers
//     warp 3                  allocate tensor memory; bring words of exponents into its order
//   two warps more            write -inf where logits are cleaned
#pragma once

#include <deep_gemm/load/sm100/logits.cuh>
#include <deep_gemm/mma/sm100/logits.cuh>
#include <deep_gemm/store/sm100/logits.cuh>

namespace deep_gemm {

namespace sm100 {

template <Constant<LogitsConfig> c>
DG_DEVICE void initialise_logits_barriers(const LogitsSmem<c>& smem) {
    for (int32_t stage = 0; stage < c.stages; ++stage) {
        ptx::barrier_init(smem.full(stage), 1);
        ptx::barrier_init(smem.empty(stage), logits_empty_arrivals(c));
        ptx::barrier_init(smem.ready(stage), 1);
    }
    for (int32_t stage = 0; stage < c.query_stages; ++stage) {
        ptx::barrier_init(smem.queries_full(stage), kQueriesFullArrivals);
        ptx::barrier_init(smem.queries_empty(stage), kQueriesEmptyArrivals);
    }
    for (int32_t i = 0; i < kLogitsAccumulators; ++i) {
        ptx::barrier_init(smem.sums_full(i), 1);
        ptx::barrier_init(smem.sums_empty(i), kLogitsSumsEmptyArrivals);
    }
    ptx::fence_barrier_init();
}

}  // namespace sm100

template <Constant<LogitsConfig> c>
DG_DEVICE void run_mqa_logits_sm100(const LogitsParams& params) {
    using namespace sm100;
    extern __shared__ uint8_t dynamic_smem[];
    constexpr int32_t kLoadKeys = kLogitsFinishWarps, kLoadAtoms = kLoadKeys + 1, kMultiply = kLoadKeys + 2,
                      kWords = kLoadKeys + 3, kClean = kLoadKeys + 4;
    constexpr uint32_t kColumns = plan_logits_tensor_memory(c).allocated;
    const LogitsSmem<c> smem(dynamic_smem);
    const int32_t warp = __shfl_sync(0xffffffff, static_cast<int32_t>(threadIdx.x / 32), 0), lane = ptx::lane();
    if (warp == kLoadKeys && ptx::elect_one()) {
        ptx::prefetch_tensor_map(&params.queries), ptx::prefetch_tensor_map(&params.keys);
        ptx::prefetch_tensor_map(&params.scales);
    }
    if (warp == kMultiply && ptx::elect_one()) initialise_logits_barriers<c>(smem);
    ptx::wait_for_previous_grid();
    if (warp == kWords) {
        ptx::allocate_tensor_memory<1>(smem.tensor_address(), kColumns);
        ptx::finish_allocating<1>();
    }
    // Ends with a barrier, behind which all see barriers and tensor memory's address.
    const LogitsShare share = share_of_cta<c, kLogitsThreads>(smem.share(), true, params);
    const uint32_t tensor_memory = ptx::load_shared_int(smem.tensor_address());
    if (warp < kLoadKeys) FinishLogits<c>(smem, tensor_memory, warp / 4).run();
    if (warp == kLoadKeys) load_keys<c>(smem, share, lane, params);
    if (warp == kLoadAtoms)
        load_atoms<c, true>(smem, share, lane, params, [&](int32_t stage, const AtomRows& rows) {
            if constexpr (c.exponents) write_query_words<c>(smem, stage, rows, lane, params);
        });
    if (warp == kMultiply) MultiplyKeys<c>(smem, tensor_memory).run();
    if constexpr (c.exponents)
        if (warp == kWords) transpose_key_words<c>(smem, share, lane, params);
    if (warp >= kClean && params.cleaned)
        clean_logits<c>(static_cast<int32_t>(blockIdx.x) * kLogitsCleaners + warp - kClean,
                        static_cast<int32_t>(gridDim.x) * kLogitsCleaners, lane, params);
    // Nobody reads tensor memory any more.
    __syncwarp();
    __syncthreads();
    if (warp == kWords) ptx::free_tensor_memory<1>(tensor_memory, kColumns);
}

}  // namespace deep_gemm
