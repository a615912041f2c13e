// Both products of a MoE layer on Hopper: a persistent grid of the roles of gemm_sm90.cuh.
//
//   warps                     first                                    then
//   math warpgroups           tiles of gate and up, quantised;         tiles of down
//                             each tells when its rows are written
//   last warpgroup, warp 0    copy operands                            copy operands, when a tile's rows are there
//   last warpgroup, warp 1    write block scales                       the same
//   last warpgroup, warp 3                                             copy D (has_store_warp)
//
// Tiles are dealt in one order: all of gate and up, then all of down, first to CTAs that were without work
// (moe/deal.cuh). A CTA waits only when it has no more tiles of gate and up, so for CTAs that wait for nobody: all of
// them must be there, which a cooperative launch promises.
#pragma once

#include <deep_gemm/kernels/gemm_sm90.cuh>
#include <deep_gemm/moe/deal.cuh>
#include <deep_gemm/moe/ready_rows.cuh>

namespace deep_gemm {

template <Constant<MoeLayerConfig> c>
using DownTiles = TileScheduler<MoeLayerParts<c>::kDown, DealAfterUp<MoeLayerParts<c>::kDown>>;

/// Tiles of gate and up, by a math warpgroup.
template <Constant<MoeLayerConfig> c, Constant<GemmConfig> kUp, typename Rows>
DG_DEVICE void write_rows(const Smem<kUp>& smem, const MoeLayerParams& params, const Rows& rows, int32_t warpgroup) {
    static_assert(kUp.store.kind == StoreKind::direct, "what a warp counts it has written itself");
    TileScheduler<kUp> tiles(params.up, smem.groups());
    MainLoop<kUp> main_loop(smem, warpgroup);
    Stores<kUp> stores(smem);
    PaddingRows<kUp> padding(smem);
    FoundRuns<kUp> runs(smem);
    typename MainLoop<kUp>::Totals total;
    const ReadyRows<c> ready(params);
    const auto reads = rows.reads(smem);
    Tile tile;
    while (tiles.next(tile)) {
        main_loop.run(total, tile, [&] {
            MainLoop<kUp>::clear(total);
            tiles.place(tile);
        });
        if (threadIdx.x < 32) reads.read(tiles.block_of_rows(tile));
        store_tile<kUp, false>(smem, total, tile, warpgroup, stores, padding, runs, params.up);
        ready.wrote(tile);
    }
    main_loop.end();
}

/// The load warp's tiles of a product whose rows come while it runs.
template <typename Tiles, Constant<GemmConfig> product, typename Ready>
DG_DEVICE void load_ready_rows(const Smem<product>& smem, const GemmParams& params, const Ready& ready) {
    Tiles tiles(params, smem.groups());
    Loader<product> loader(smem, params);
    Tile tile = {};
    while (tiles.next(tile)) {
        tiles.place(tile);
        loader.copy(ready.wait(tile, tiles.block_of_rows(tile)), tile_source<product>(params, tile));
    }
    if constexpr (product.multicasts()) loader.drain();
}

/// Rows lie here, and results stay here: what moe_layer_ranks_sm90.cuh does otherwise.
template <Constant<MoeLayerConfig> c, Constant<GemmConfig> kUp, Constant<GemmConfig> kDown>
struct RowsHere {
    const MoeLayerParams& params;

    DG_DEVICE void load_up(const Smem<kUp>& smem) const {
        LoadRole<kUp> load(smem, params.up);
        load.begin();
        load.run();
    }
    /// By the last two warps of those that load.
    DG_DEVICE void bring(const Smem<kUp>&, int32_t) const {}
    /// Whom the first warp tells that the copies of a tile have come.
    struct Reads {
        DG_DEVICE void read(int32_t) const {}
    };
    DG_DEVICE Reads reads(const Smem<kUp>&) const { return {}; }
    DG_DEVICE void multiply_down(const Smem<kDown>& smem, int32_t warpgroup) const {
        multiply_tiles<kDown, DownTiles<c>>(smem, params.down, warpgroup);
    }
    DG_DEVICE void store_down(const Smem<kDown>& smem) const {
        if constexpr (has_store_warp(c.down)) store_tiles<kDown, DownTiles<c>>(smem, params.down);
    }
};

/// Those that initialise_*_barriers make.
template <Constant<GemmConfig> c>
DG_DEVICE void invalidate_barriers(const Smem<c>& smem) {
    static_assert(!has_store_warp(c) && !marks_padding(c) && k_parts(c) == 1);
    for (int32_t stage = 0; stage < c.stages; ++stage) {
        ptx::barrier_invalidate(smem.full(stage));
        ptx::barrier_invalidate(smem.empty(stage));
    }
    for (int32_t buffer = 0; buffer < exchange_barriers(c, fragment_d_cols(c)); ++buffer)
        ptx::barrier_invalidate(smem.maxima_barrier(buffer));
}

/// All threads of the cluster meet: what they did with shared memory before is over.
template <Constant<GemmConfig> c>
DG_DEVICE void meet() {
    if constexpr (c.cluster.size() > 1) {
        ptx::cluster_arrive_release();
        ptx::cluster_wait();
    } else {
        __syncthreads();
    }
}

/// Shared memory of one product becomes that of the other. All threads; the table of groups stays what it was.
template <Constant<GemmConfig> kUp, Constant<GemmConfig> kDown>
DG_DEVICE void change_products(const Smem<kUp>& up, const Smem<kDown>& down) {
    constexpr int32_t kThreads = threads(kUp), kEntries = kUp.group_capacity + 1, kEach = ceil_div(kEntries, kThreads);
    const auto thread = static_cast<int32_t>(threadIdx.x);
    GroupEntry entries[kEach];
#pragma unroll
    for (int32_t i = 0; i < kEach; ++i) entries[i] = up.groups().entry(min(i * kThreads + thread, kEntries - 1));
    ptx::fence_for_async_proxy();  // what threads have written here, copies will overwrite
    meet<kUp>();
    const bool initialises = thread / 32 == kUp.sm90.math_warpgroups * 4 + 1;
    if (initialises && ptx::elect_one()) invalidate_barriers<kUp>(up);
    __syncthreads();  // what was a barrier may be overwritten
#pragma unroll
    for (int32_t i = 0; i < kEach; ++i)
        if (const int32_t index = i * kThreads + thread; index < kEntries)
            ptx::store_shared_int_x4(down.groups().base + index * kGroupEntryBytes, entries[i].block_end,
                                     entries[i].row_begin, entries[i].row_end, entries[i].group);
    if (initialises && ptx::elect_one()) {
        initialise_full_barriers<kDown>(down);
        initialise_other_barriers<kDown>(down);
    }
    meet<kDown>();
}

template <Constant<MoeLayerConfig> c, typename Rows>
DG_DEVICE void run_moe_layer(const MoeLayerParams& params, const Rows& rows) {
    constexpr Constant<GemmConfig> kUp = MoeLayerParts<c>::kUp, kDown = MoeLayerParts<c>::kDown;
    static_assert(fit_together(c.up, c.down) && may_be_in_layer(c.up) && may_be_in_layer(c.down));
    static_assert(c.up.quantises_gates());
    extern __shared__ uint8_t dynamic_smem[];
    const Smem<kUp> up(dynamic_smem);
    const Smem<kDown> down(dynamic_smem);
    const int32_t warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0),
                  warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    const bool is_loading = warpgroup == c.up.sm90.math_warpgroups;

    if (is_loading) {
        if (warp == 0 && ptx::elect_one()) {
            prefetch_tensor_maps<kUp>(params.up);
            prefetch_tensor_maps<kDown>(params.down);
        }
        if (warp == 1 && ptx::elect_one()) initialise_full_barriers<kUp>(up);
        if (warp == 2 && ptx::elect_one()) initialise_other_barriers<kUp>(up);
    }
    ptx::wait_for_previous_grid();
    up.groups().template fill<threads(c.up)>(params.up);
    sync_threads<kUp>();

    if (is_loading) {
        if constexpr (moves_registers(c.up)) ptx::give_registers<load_registers(c.up)>();
        if (warp == 0) rows.load_up(up);
        if constexpr (c.up.has_block_scales())
            if (warp == 1) load_block_scales<kUp>(up, params.up);
        if (warp >= 2) rows.bring(up, warp - 2);
        change_products(up, down);
        if (warp == 0) load_ready_rows<DownTiles<c>, kDown>(down, params.down, ReadyRows<c>(params));
        if constexpr (c.down.has_block_scales())
            if (warp == 1) load_block_scales<kDown, DownTiles<c>>(down, params.down);
        if (warp == 3 && ptx::elect_one()) rows.store_down(down);
    } else {
        if constexpr (moves_registers(c.up)) ptx::take_registers<math_registers(c.up)>();
        write_rows<c>(up, params, rows, warpgroup);
        change_products(up, down);
        rows.multiply_down(down, warpgroup);
    }
    // No CTA may leave while others write to it: who copies for others waits for their arrivals (drain).
}

template <Constant<MoeLayerConfig> c>
DG_DEVICE void run_moe_layer_sm90(const MoeLayerParams& params) {
    run_moe_layer<c>(params, RowsHere<c, MoeLayerParts<c>::kUp, MoeLayerParts<c>::kDown>{params});
}

}  // namespace deep_gemm
