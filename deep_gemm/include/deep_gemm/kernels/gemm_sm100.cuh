// The Blackwell GEMM kernel: a persistent grid of warp-specialised CTAs, or of pairs of them.
//
//   warps                     role
//   first warpgroup           read sums from tensor memory, store D; where they are promoted, the second one too
//   last one, warp 0          copy operands and scales into the ring (one lane copies)
//   its warp 1                issue products (one lane; of a pair the leader's); first initialise the barriers
//   its warp 2                allocate tensor memory; bring words of scales into its order (transposes_words), or
//                             FP32 scales of blocks into the ring
//   its warp 3                first, ask the L2 for the first weights (one lane); find rows of padding, and fill blocks
//                             of them with zeros (marks_padding)
//   one more warpgroup        where weights are packed, convert them into tensor memory
#pragma once

#include <deep_gemm/load/block_scales.cuh>
#include <deep_gemm/load/prefetch_maps.cuh>
#include <deep_gemm/load/sm100/first_weights.cuh>
#include <deep_gemm/load/sm100/tma.cuh>
#include <deep_gemm/mma/sm100/block_sums.cuh>
#include <deep_gemm/mma/sm100/convert_rows.cuh>
#include <deep_gemm/mma/sm100/converted.cuh>
#include <deep_gemm/mma/sm100/mainloop.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/scale/sm100/transpose_words.cuh>
#include <deep_gemm/store/sm100/promote_role.cuh>
#include <deep_gemm/store/sm100/store_role.cuh>
#include <deep_gemm/tile/padding.cuh>

namespace deep_gemm::sm100 {

template <Constant<GemmConfig> c>
DG_DEVICE void initialise_barriers(const Smem<c>& smem) {
    for (int32_t stage = 0; stage < c.stages; ++stage) {
        ptx::barrier_init(smem.full(stage), kFullArrivals);
        ptx::barrier_init(smem.empty(stage), empty_arrivals(c));
        if constexpr (transposes_words(c)) ptx::barrier_init(smem.ready(stage), ready_arrivals(c));
        if constexpr (promotes(c)) ptx::barrier_init(smem.scales_full(stage), scales_full_arrivals(c));
    }
    for (int32_t i = 0; i < c.sm100.accumulators; ++i) {
        ptx::barrier_init(smem.sums_full(i), kSumsFullArrivals);
        ptx::barrier_init(smem.sums_empty(i), sums_empty_arrivals(c));
    }
    if constexpr (converts(c)) {
        for (int32_t i = 0; i < kConvertedBuffers; ++i) {
            ptx::barrier_init(smem.converted_full(i), converted_full_arrivals(c));
            ptx::barrier_init(smem.converted_empty(i), kConvertedEmptyArrivals);
        }
    }
    if constexpr (marks_padding(c)) {
        ptx::barrier_init(smem.padding_known(), 1);
        ptx::barrier_init(smem.padding_read(), store_warps(c));
    }
    if constexpr (c.cluster.k > 1) expect_parts<c>(smem);
    FoundRuns<c>::initialise(smem);
    ptx::fence_barrier_init();
}

template <Constant<GemmConfig> c>
DG_DEVICE void prefetch_tensor_maps(const GemmParams& params) {
    prefetch_maps<c, (Smem<c>::kPlan.row_scale_bytes > 0), (Smem<c>::kPlan.col_scale_bytes > 0)>(params);
}

/// All threads of a CTA, or of a pair, whose instructions use the shared and tensor memory of both.
template <Constant<GemmConfig> c>
DG_DEVICE void sync_threads() {
    if constexpr (mma_ctas(c) == 1) {
        __syncthreads();
    } else {
        ptx::cluster_arrive_release();
        ptx::cluster_wait();
    }
}

/// Where CTAs split K: until all have arrived and can be sent parts. Warps that send none wait too, before they leave.
template <Constant<GemmConfig> c>
DG_DEVICE void wait_for_receivers() {
    if constexpr (c.cluster.k > 1) ptx::cluster_wait();
}

/// Of this CTA, equal in all lanes. Read each time.
DG_DEVICE int32_t warp_number() { return __shfl_sync(0xffffffff, static_cast<int32_t>(threadIdx.x / 32), 0); }

/// The same in a register of its own: one that all roles share would be spilled by totals that are promoted.
template <Constant<GemmConfig> c>
DG_DEVICE Smem<c> apart(Smem<c> smem) {
    int32_t base = static_cast<int32_t>(smem.base);
    if constexpr (promotes(c)) ptx::forget(base);
    smem.base = static_cast<uint32_t>(base);
    return smem;
}

/// What stores a tile, and what multiplies.
template <Constant<GemmConfig> c, bool = promotes(c), bool = converts(c)>
struct SelectRoles {
    using Store = StoreRole<c>;
    using Multiply = MainLoop<c>;
};
template <Constant<GemmConfig> c>
struct SelectRoles<c, true, false> {
    using Store = PromoteRole<c>;
    using Multiply = BlockSums<c>;
};
template <Constant<GemmConfig> c>
struct SelectRoles<c, false, true> {
    using Store = StoreRole<c>;
    using Multiply = ConvertedSums<c>;
};
template <Constant<GemmConfig> c>
struct SelectRoles<c, true, true> {
    using Store = PromoteRole<c>;
    using Multiply = ConvertedGroupSums<c>;
};

template <Constant<GemmConfig> c>
DG_DEVICE void run_gemm(const GemmParams& params) {
    extern __shared__ uint8_t dynamic_smem[];
    constexpr int32_t kCtas = mma_ctas(c), kLoad = store_warps(c), kMultiply = kLoad + 1, kScales = kLoad + 2,
                      kPadding = kLoad + 3, kConvert = kLoad + 4;
    using Roles = SelectRoles<c>;
    constexpr uint32_t kColumns = plan_tensor_memory(c).allocated;
    const Smem<c> smem(dynamic_smem);
    const int32_t warp = warp_number();

    if (warp == kLoad && ptx::elect_one()) prefetch_tensor_maps<c>(params);
    if (warp == kMultiply && ptx::elect_one()) initialise_barriers<c>(smem);
    if constexpr (fetches_first_weights(c))
        if (warp == kPadding && ptx::elect_one()) fetch_first_weights<c>(smem, params);
    // Nothing that a preceding kernel may write has been read so far, and no tensor memory been asked for: what it
    // holds it gives back when it ends. The next kernel is not told to start before this one has left: CTAs that get
    // SMs as they become free lie anywhere (docs/notes/results.md, "Chains").
    ptx::wait_for_previous_grid();
    smem.groups().template fill<threads(c)>(params);
    if constexpr (mma_ctas(c) > 1) sync_threads<c>();  // the other CTA is there
    if constexpr (c.cluster.k > 1) ptx::cluster_arrive();
    if (warp == kScales) {
        ptx::allocate_tensor_memory<kCtas>(smem.tensor_address(), kColumns);
        ptx::finish_allocating<kCtas>();
    }
    sync_threads<c>();
    const uint32_t tensor_memory = ptx::load_shared_int(smem.tensor_address());

    const int32_t role = warp_number();
    if (role < kLoad) {
        if constexpr (moves_registers(c)) ptx::take_registers<store_registers(c)>();
        wait_for_receivers<c>();
        const Smem<c> own = apart(smem);
        typename Roles::Store(own, params, tensor_memory).run();
    } else {
        if constexpr (moves_registers(c)) ptx::give_registers<other_registers(c)>();
        if (role == kLoad) LoadRole<c>(smem, params).run();
        if (role == kMultiply && ClusterPosition<c>().row == 0)
            typename Roles::Multiply(smem, params, tensor_memory).run();
        if constexpr (transposes_words(c))
            if (role == kScales) transpose_role<c>(smem, params);
        if constexpr (promotes(c) && c.has_block_scales())
            if (role == kScales) load_block_scales<c>(smem, params);
        if constexpr (marks_padding(c))
            if (role == kPadding) find_padding<c>(smem, params);
        if constexpr (converts(c))
            if (role >= kConvert) ConvertRole<c>(smem, params, tensor_memory).run();
        __syncwarp();
        wait_for_receivers<c>();
    }

    // No CTA may give tensor memory back while its store warps read it, and none of a pair leave while the other's
    // instructions use what it has. Those that split K need not meet: an owner has waited for what it was sent.
    __syncwarp();
    sync_threads<c>();
    // Who this is and where tensor memory lies is read anew: roles that need all registers would spill it.
    if (warp_number() == kScales) ptx::free_tensor_memory<kCtas>(ptx::load_shared_int(smem.tensor_address()), kColumns);
}

}  // namespace deep_gemm::sm100

namespace deep_gemm {

using sm100::threads;

template <Constant<GemmConfig> c>
DG_DEVICE void run_gemm_sm100(const GemmParams& params) {
    sm100::run_gemm<c>(params);
}

}  // namespace deep_gemm
