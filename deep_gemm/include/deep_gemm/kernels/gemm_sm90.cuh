// The Hopper GEMM kernel: a persistent grid of warp-specialised CTAs.
//
//   warps                     role
//   math warpgroups           wait for a stage, multiply, promote, store D
//   last warpgroup, warp 0    copy operands and per-row scales into the ring (one lane copies)
//   last warpgroup, warp 1    write block scales into the ring
//   or its warps 1 and 2      write columns' scales into the ring, as an operand of wgmma (wgmma_products)
//   its warp 0, first         ask the L2 for what likely comes first (likely_k_blocks)
//   its warps 1 and 2, first  initialise the barriers
//   last warpgroup, warp 2    find rows of padding, and fill blocks of them with zeros (marks_padding)
//   last warpgroup, warp 3    copy D from its staging buffers (has_store_warp; else the math warps do)
#pragma once

#include <deep_gemm/load/block_scales.cuh>
#include <deep_gemm/load/prefetch_maps.cuh>
#include <deep_gemm/load/sm90/likely_tile.cuh>
#include <deep_gemm/load/sm90/tma.cuh>
#include <deep_gemm/mma/sm90/mainloop.cuh>
#include <deep_gemm/mma/sm90/scale_products.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/store/sm90/store_role.cuh>
#include <deep_gemm/store/sm90/store_tile.cuh>
#include <deep_gemm/tile/padding.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c, typename Tiles = TileScheduler<c>>
DG_DEVICE void multiply_tiles(const Smem<c>& smem, const GemmParams& params, int32_t warpgroup) {
    Tiles tiles(params, smem.groups());
    MainLoop<c> main_loop(smem, warpgroup);
    Stores<c> stores(smem);
    PaddingRows<c> padding(smem);
    FoundRuns<c> runs(smem);
    typename MainLoop<c>::Totals total;
    // A tile with another behind it is not shared: the code that exchanges parts stays out of the loop over K.
    const auto store_whole = [&](const Tile& tile) {
        store_tile<c, false>(smem, total, tile, warpgroup, stores, padding, runs, params);
    };
    const auto store = [&](const Tile& tile) {
        store_tile<c, c.split_k.last_tiles>(smem, total, tile, warpgroup, stores, padding, runs, params);
    };
    Tile tile, before;
    bool pending = false;
    while (tiles.next(tile)) {
        main_loop.run(total, tile, [&] {
            if (pending) store_whole(before);
            MainLoop<c>::clear(total);
            tiles.place(tile);
            if constexpr (c.add_c)
                fetch_lines<c>(tile, static_cast<const typename Storage<c.output>::Type*>(params.c_data),
                               params.c_stride, params.c_group_stride, params);
            if constexpr (c.store.kind == StoreKind::direct_add)
                fetch_lines<c>(tile, static_cast<const float*>(params.d_data), params.d_stride, params.d_group_stride,
                               params);
        });
        if constexpr (stores_late(c))
            before = tile, pending = true;
        else
            store(tile);
    }
    main_loop.end();
    if (pending) store(before);
    stores.finish();
}

/// One after the other takes long: two threads share them. (Lanes of one warp would take turns.)
template <Constant<GemmConfig> c>
DG_DEVICE void initialise_full_barriers(const Smem<c>& smem) {
    for (int32_t stage = 0; stage < c.stages; ++stage) ptx::barrier_init(smem.full(stage), full_arrivals(c));
    ptx::fence_barrier_init();
}

template <Constant<GemmConfig> c>
DG_DEVICE void initialise_other_barriers(const Smem<c>& smem) {
    for (int32_t stage = 0; stage < c.stages; ++stage) ptx::barrier_init(smem.empty(stage), empty_arrivals(c));
    if constexpr (has_store_warp(c)) {
        ptx::barrier_init(smem.staged(), c.sm90.math_warpgroups * 4);
        ptx::barrier_init(smem.drained(), 1);
    }
    if constexpr (marks_padding(c)) {
        ptx::barrier_init(smem.padding_known(), 1);
        ptx::barrier_init(smem.padding_read(), c.sm90.math_warpgroups * 4);
    }
    if constexpr (c.split_k.last_tiles) {
        ptx::barrier_init(smem.ring_done(), c.sm90.math_warpgroups * 4);
        for (int32_t slot = 0; slot < shared_pieces(c) / 2; ++slot) {
            ptx::barrier_init(smem.parts_barrier(slot), 1);
            ptx::barrier_arrive_expect(smem.parts_barrier(slot), split_k_part_bytes(c));
        }
    }
    if constexpr (k_parts(c) > 1)
        for (int32_t slot = 0; slot < owned_row_warps(c); ++slot) {
            // Parts of other CTAs come asynchronously and are counted in bytes.
            ptx::barrier_init(smem.parts_barrier(slot), c.k_ctas() > 1 ? 1 : k_parts(c) - 1);
            if constexpr (c.k_ctas() > 1) ptx::barrier_arrive_expect(smem.parts_barrier(slot), received_bytes(c));
        }
    FoundRuns<c>::initialise(smem);
    ptx::fence_barrier_init();
}

template <Constant<GemmConfig> c>
DG_DEVICE void prefetch_tensor_maps(const GemmParams& params) {
    prefetch_maps<c, c.row_scales().per_row(), copies_col_scales(c)>(params);
    if constexpr (c.rows_operand().has_zeros()) ptx::prefetch_tensor_map(&params.zeros);
}

/// All threads of the CTA meet. Of a cluster's other CTAs, copies wait where they go to them; where these only split K,
/// who sends them a part waits (wait_for_receivers).
template <Constant<GemmConfig> c>
DG_DEVICE void sync_threads() {
    if constexpr (c.cluster.size() > 1) ptx::cluster_arrive();
    __syncthreads();
    if constexpr (c.multicasts()) ptx::cluster_wait();
}

/// Where CTAs split K: until all have arrived and can be sent parts. Warps that send none wait too, before they leave:
/// that one may leave between arriving and waiting is promised nowhere.
template <Constant<GemmConfig> c>
DG_DEVICE void wait_for_receivers() {
    if constexpr (c.cluster.size() > 1 && !c.multicasts()) ptx::cluster_wait();
}

/// Two warpgroups have registers enough from the start.
constexpr bool moves_registers(const GemmConfig& c) { return c.sm90.math_warpgroups > 1; }

template <Constant<GemmConfig> c>
DG_DEVICE void run_gemm_sm90(const GemmParams& params) {
    extern __shared__ uint8_t dynamic_smem[];
    const Smem<c> smem(dynamic_smem);
    const int32_t warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0),
                  warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);

    if (warpgroup == c.sm90.math_warpgroups) {
        if (warp == 0 && ptx::elect_one()) prefetch_tensor_maps<c>(params);
        if (warp == 1 && ptx::elect_one()) initialise_full_barriers<c>(smem);
        if (warp == 2 && ptx::elect_one()) initialise_other_barriers<c>(smem);
    }
    // Nothing that a preceding kernel may write has been touched so far. The next kernel is not told to start before
    // this one has left: CTAs that get SMs as they become free lie anywhere, and neighbours, which read the same, in
    // different GPCs (docs/notes/results.md, "Chains").
    ptx::wait_for_previous_grid();
    if constexpr (likely_k_blocks(c) > 0)
        if (warpgroup == c.sm90.math_warpgroups && warp == 0 && ptx::elect_one()) fetch_likely_tile<c>(params);
    smem.groups().template fill<threads(c)>(params);
    // Barriers and the table of groups have been written when all have met. Without a table the load warp finds its
    // first tile before, since all wait for its copies.
    const bool loads = warpgroup == c.sm90.math_warpgroups && warp == 0;
    constexpr bool kTable = TileScheduler<c>::kReadsTable;
    if constexpr (kTable) sync_threads<c>();
    LoadRole<c> load(smem, params);
    if (loads) load.begin();
    if constexpr (!kTable) sync_threads<c>();

    if (warpgroup == c.sm90.math_warpgroups) {
        if constexpr (moves_registers(c)) ptx::give_registers<load_registers(c)>();
        if (loads) load.run();
        if constexpr (c.has_block_scales())
            if (warp == 1) load_block_scales<c>(smem, params);
        if constexpr (c.sm90.wgmma_products)
            if (warp >= 1 && warp <= kSplitWarps) load_split_scales<c>(smem, params, warp - 1);
        if constexpr (marks_padding(c))
            if (warp == 2) find_padding<c>(smem, params);
        if constexpr (has_store_warp(c))
            if (warp == 3 && ptx::elect_one()) store_tiles<c>(smem, params);
        wait_for_receivers<c>();
    } else {
        wait_for_receivers<c>();
        if constexpr (moves_registers(c)) ptx::take_registers<math_registers(c)>();
        multiply_tiles<c>(smem, params, warpgroup);
    }
    // No CTA may leave while others write to it. Each has waited for what they send: the load role for their arrivals
    // (drain), math warps for copies and for parts of a split K.
}

}  // namespace deep_gemm
