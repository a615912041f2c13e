// Both products of a MoE layer on Hopper whose experts are spread over GPUs: the roles of moe_layer_sm90.cuh, and
//
//   warps                       first                                      then
//   last warpgroup, warps 2, 3  bring tokens' rows from all ranks, in the
//                               order of the tiles
//   math warpgroups             as there                                   tiles of down, sent from registers to the
//                                                                          ranks whose tokens they are of
//
// A tile of gate and up begins when its own rows have come. Where there is room for fewer rows than there are, blocks
// of them take turns: a row comes when all tiles of the block that was there before have been read.
#pragma once

#include <deep_gemm/kernels/moe_layer_sm90.cuh>
#include <deep_gemm/moe/pulled_rows.cuh>
#include <deep_gemm/moe/sent_rows.cuh>
#include <deep_gemm/ranks/flags.cuh>

namespace deep_gemm {

template <Constant<MoeLayerConfig> c, Constant<GemmConfig> kUp, Constant<GemmConfig> kDown>
struct RowsOfRanks {
    const MoeLayerRanksParams& params;

    DG_DEVICE void load_up(const Smem<kUp>& smem) const {
        load_ready_rows<TileScheduler<kUp>, kUp>(smem, params.up, PulledRows<c>(params, smem.groups()));
    }
    DG_DEVICE PulledRows<c> reads(const Smem<kUp>& smem) const { return {params, smem.groups()}; }
    DG_DEVICE void bring(const Smem<kUp>& smem, int32_t warp) const {
        if (blockIdx.x == 0 && warp == 0 && ptx::lane() == 0) count_call(params.travel.ranks);
        pull_rows_of_tiles<c, kUp>(smem.groups(), params, warp);
    }
    DG_DEVICE void multiply_down(const Smem<kDown>& smem, int32_t warpgroup) const {
        DownTiles<c> tiles(params.down, smem.groups());
        MainLoop<kDown> main_loop(smem, warpgroup);
        SentStores<kDown> stores{params.travel};
        PaddingRows<kDown> padding(smem);
        FoundRuns<kDown> runs(smem);
        typename MainLoop<kDown>::Totals total;
        Tile tile;
        while (tiles.next(tile)) {
            main_loop.run(total, tile, [&] {
                MainLoop<kDown>::clear(total);
                tiles.place(tile);
            });
            store_tile<kDown, false>(smem, total, tile, warpgroup, stores, padding, runs, params.down);
        }
        main_loop.end();
    }
    DG_DEVICE void store_down(const Smem<kDown>&) const {}
};

template <Constant<MoeLayerConfig> c>
DG_DEVICE void run_moe_layer_ranks_sm90(const MoeLayerRanksParams& params) {
    static_assert(may_be_sent(c.down));
    run_moe_layer<c>(params, RowsOfRanks<c, MoeLayerParts<c>::kUp, MoeLayerParts<c>::kDown>{params});
}

}  // namespace deep_gemm
