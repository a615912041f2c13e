// What becomes of a math warp's sums of a tile.
#pragma once

#include <deep_gemm/epilogue/finish_tile.cuh>
#include <deep_gemm/mma/sm90/mainloop.cuh>
#include <deep_gemm/store/sm90/direct.cuh>
#include <deep_gemm/store/sm90/split_k.cuh>
#include <deep_gemm/store/sm90/staged.cuh>

namespace deep_gemm {

/// How math warps get D out.
template <GemmConfig c, bool = is_staged(c.store), bool = has_store_warp(c)>
struct SelectStores {
    using Type = DirectStores<c>;
};
template <GemmConfig c>
struct SelectStores<c, true, false> {
    using Type = OwnStores<c>;
};
template <GemmConfig c>
struct SelectStores<c, true, true> {
    using Type = HandedStores<c>;
};
template <GemmConfig c>
using Stores = typename SelectStores<c>::Type;

/// The end of 64 rows of a tile.
template <GemmConfig c>
DG_DEVICE void store_subtile(const Smem<c>& smem, Sums<c>& total, const Tile& tile, int32_t warpgroup, int32_t subtile,
                             Stores<c>& stores, const PaddingRows<c>& padding, const GemmParams& params) {
    Fragment<c> at(tile, first_row(c, warpgroup) + subtile * subtile_step(c), params);
    if constexpr (Fragment<c>::kExchanges) at.area = smem.exchange();
    Results<c> results;
    finish_tile<c>(results, total, at, tile, WarpPadding<c>{padding, subtile}, params);
    stores.write(results, at, tile, subtile, params);
}

inline constexpr int32_t kRunsFound = 7;  // a named barrier of the math warps

/// What they find of columns that share a scale, and others have a part of, ahead of the tile's end.
template <GemmConfig c, int32_t kSubtiles>
DG_DEVICE void exchange_runs(const Smem<c>& smem, Sums<c> (&total)[kSubtiles], const Tile& tile, int32_t warpgroup,
                             const PaddingRows<c>& padding, const GemmParams& params) {
    static_assert(k_parts(c) == 1 && !c.split_k.last_tiles, "all warps have sums");
    const auto wait = [] { ptx::named_barrier_wait(kRunsFound, c.sm90.math_warpgroups * 128); };
    wait();  // what the tile before found has been read
#pragma unroll
    for (int32_t subtile = 0; subtile < kSubtiles; ++subtile) {
        Fragment<c> at(tile, first_row(c, warpgroup) + subtile * subtile_step(c), params);
        at.area = smem.exchange(), at.finds = true;
        Results<c> results;
        finish_tile<c>(results, total[subtile], at, tile, WarpPadding<c>{padding, subtile}, params);
    }
    wait();
}

/// A warpgroup's rows of a tile, of which other warps of the cluster may hold parts.
template <GemmConfig c, bool kMayBeShared>
DG_DEVICE void store_tile(const Smem<c>& smem, typename MainLoop<c>::Totals& total, const Tile& tile, int32_t warpgroup,
                          Stores<c>& stores, PaddingRows<c>& padding, const GemmParams& params) {
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
    if constexpr (Fragment<c>::kExchanges) exchange_runs<c>(smem, total, tile, warpgroup, padding, params);
    if (owned(0)) store_subtile<c>(smem, total[0], tile, warpgroup, 0, stores, padding, params);
    // Written out: a loop over accumulators that the compiler does not unroll would put them all into local memory.
    static_assert(kSubtiles <= 2);
    if constexpr (kSubtiles == 2)
        if (owned(1)) store_subtile<c>(smem, total[1], tile, warpgroup, 1, stores, padding, params);
    padding.end();
    stores.end();
}

}  // namespace deep_gemm
