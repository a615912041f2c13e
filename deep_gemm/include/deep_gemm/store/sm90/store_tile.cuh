// What becomes of a math warp's sums of a tile.
#pragma once

#include <deep_gemm/epilogue/finish_tile.cuh>
#include <deep_gemm/mma/sm90/mainloop.cuh>
#include <deep_gemm/store/found_runs.cuh>
#include <deep_gemm/store/sm90/direct.cuh>
#include <deep_gemm/store/sm90/split_k.cuh>
#include <deep_gemm/store/sm90/staged.cuh>

namespace deep_gemm {

/// How math warps get D out. (Another kernel may have a way of its own.)
template <Constant<GemmConfig> c, bool = is_staged(c.store), bool = has_store_warp(c)>
struct SelectStores {
    using Type = DirectStores<c>;
};
template <Constant<GemmConfig> c>
struct SelectStores<c, true, false> {
    using Type = OwnStores<c>;
};
template <Constant<GemmConfig> c>
struct SelectStores<c, true, true> {
    using Type = HandedStores<c>;
};
template <Constant<GemmConfig> c>
using Stores = typename SelectStores<c>::Type;

/// Of the parts of K, one has the sums.
template <Constant<GemmConfig> c>
using FoundRuns = FoundRunsOf<c, Smem<c>, fragment_d_cols(c), row_warpgroups(c) * 4>;

/// The end of 64 rows of a tile.
template <Constant<GemmConfig> c>
DG_DEVICE void store_subtile(Sums<c>& total, const Tile& tile, int32_t warpgroup, int32_t subtile, auto& stores,
                             const PaddingRows<c>& padding, const GemmParams& params) {
    const Fragment<c> at(tile, first_row(c, warpgroup) + subtile * subtile_step(c), params);
    Results<c> results;
    finish_tile<c>(results, total, at, tile, WarpPadding<c>{padding, subtile}, params);
    stores.write(results, at, tile, subtile, params);
}

/// The same of all its rows where others have some of the columns that share a scale.
template <Constant<GemmConfig> c, int32_t kSubtiles>
DG_DEVICE void store_exchanged(Sums<c> (&total)[kSubtiles], const Tile& tile, int32_t warpgroup, auto& stores,
                               const PaddingRows<c>& padding, FoundRuns<c>& runs, const GemmParams& params) {
    const auto place = [&](int32_t subtile, bool finds) {
        Fragment<c> at(tile, first_row(c, warpgroup) + subtile * subtile_step(c), params);
        runs.set_exchange(at), at.finds = finds;
        return at;
    };
    Results<c> results[kSubtiles];
    runs.begin();
#pragma unroll
    for (int32_t subtile = 0; subtile < kSubtiles; ++subtile)
        finish_tile<c>(results[subtile], total[subtile], place(subtile, true), tile, WarpPadding<c>{padding, subtile},
                       params);
    runs.wait();
#pragma unroll
    for (int32_t subtile = 0; subtile < kSubtiles; ++subtile) {
        const Fragment<c> at = place(subtile, false);
        quantise_found<c>(results[subtile], at, tile, WarpPadding<c>{padding, subtile}, params);
        stores.write(results[subtile], at, tile, subtile, params);
    }
    runs.end();
}

/// A warpgroup's rows of a tile, of which other warps of the cluster may hold parts.
template <Constant<GemmConfig> c, bool kMayBeShared>
DG_DEVICE void store_tile(const Smem<c>& smem, typename MainLoop<c>::Totals& total, const Tile& tile, int32_t warpgroup,
                          auto& stores, PaddingRows<c>& padding, FoundRuns<c>& runs, const GemmParams& params) {
    constexpr int32_t kSubtiles = MainLoop<c>::kSubtiles;
    if constexpr (k_parts(c) > 1) {
        static_assert(kSubtiles == 1, "a warp owns 16 rows of a tile whose K is split");
        if (!reduce_split_k<c>(smem, ClusterPosition<c>(), total[0])) return;
    }
    if constexpr (kMayBeShared)
        if (tile.shared) exchange_pieces<c, kSubtiles>(smem, total);
    const auto owned = [&](int32_t subtile) { return !kMayBeShared || owns<c>(tile, threadIdx.x / 32, subtile); };
    stores.begin();
    padding.begin();
    if constexpr (Fragment<c>::kExchanges) {
        store_exchanged<c>(total, tile, warpgroup, stores, padding, runs, params);
    } else {
        if (owned(0)) store_subtile<c>(total[0], tile, warpgroup, 0, stores, padding, params);
        // Written out: a loop over accumulators that the compiler does not unroll would put them all into local memory.
        static_assert(kSubtiles <= 2);
        if constexpr (kSubtiles == 2)
            if (owned(1)) store_subtile<c>(total[1], tile, warpgroup, 1, stores, padding, params);
    }
    padding.end();
    stores.end();
}

}  // namespace deep_gemm
