// Columns of D that share a scale (epilogue/quantize.cuh) where several warps have some of them: first each warp finds
// its largest magnitudes and sends them to the others, then, behind a barrier, values are divided by what all found.
// The warps are those of a CTA; or those of CTAs that divide the columns, or K, among themselves.
#pragma once

#include <deep_gemm/config.cuh>
#if defined(__CUDACC__)
#include <deep_gemm/ptx/maximum.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/cluster_position.cuh>
#endif

namespace deep_gemm {

/// `held`: columns of D, side by side, that a warp finds the largest magnitude of by itself.
constexpr bool exchanges_runs(const GemmConfig& c, int32_t held) {
    return c.output_scaling.any() && held % c.output_scaling.k != 0;
}
/// Columns of D that a CTA's tile has, and CTAs side by side that have those of a run.
constexpr int32_t tile_d_cols(const GemmConfig& c) { return c.d_cols(c.tile_n()); }
constexpr int32_t run_ctas(const GemmConfig& c) {
    return c.output_scaling.any() && tile_d_cols(c) < c.output_scaling.k ? c.output_scaling.k / tile_d_cols(c) : 1;
}
/// Whether several CTAs exchange maxima. They do so by stores that an mbarrier counts (st.async: never in a launch
/// without clusters, one of which an H200 ended); every other tile has a barrier and an area of its own, since who has
/// all of a tile's numbers may send the next one's while another still waits for some. Each warp arrives too, when it
/// has read those of the tile before.
constexpr bool exchanges_across(const GemmConfig& c, int32_t held) {
    return exchanges_runs(c, held) && (run_ctas(c) > 1 || c.k_ctas() > 1);
}
/// Where K is split a CTA has one tile.
constexpr int32_t exchange_barriers(const GemmConfig& c, int32_t held) {
    return !exchanges_across(c, held) ? 0 : c.k_ctas() * c.split_k.warpgroups > 1 ? 1 : 2;
}
/// Of shared memory for a tile: a number for each row of it and each warp that has columns beside it.
constexpr int32_t maxima_bytes(const GemmConfig& c, int32_t held) {
    return exchanges_runs(c, held) ? tile_d_cols(c) * run_ctas(c) / held * c.tile_m() * 4 : 0;
}
constexpr int32_t exchange_bytes(const GemmConfig& c, int32_t held) {
    return maxima_bytes(c, held) * (exchange_barriers(c, held) == 2 ? 2 : 1);
}

#if defined(__CUDACC__)
/// Which CTA of the cluster is the `n`th that has columns of this one's runs, in the `k`th part of K.
template <Constant<GemmConfig> c>
DG_DEVICE int32_t run_cta_rank(int32_t n, int32_t k) {
    const ClusterPosition<c> mine;
    const int32_t along_n = c.swap_ab ? mine.row : mine.col, other = along_n - along_n % run_ctas(c) + n;
    return c.swap_ab ? mine.rank(other, mine.col, k) : mine.rank(mine.row, other, k);
}

/// What a place knows of it.
template <Constant<GemmConfig> c, int32_t kHeld, bool = exchanges_runs(c, kHeld)>
struct RunExchange {
    static constexpr bool kExchanges = false;
    template <typename Other>
    DG_DEVICE void exchange_as(const Other&) {}
};
template <Constant<GemmConfig> c, int32_t kHeld>
struct RunExchange<c, kHeld, true> {
    static constexpr bool kExchanges = true;
    uint32_t area = 0, barrier = 0;  // in shared memory
    bool finds = false;              // or divides

    template <typename Other>
    DG_DEVICE void exchange_as(const Other& other) {
        area = other.area, barrier = other.barrier, finds = other.finds;
    }

    /// Row and column count within the tile.
    DG_DEVICE void send_maximum(int32_t row, int32_t col, float largest) const {
        if constexpr (!exchanges_across(c, kHeld)) return ptx::store_shared(place(row, col / kHeld), largest);
        const ClusterPosition<c> mine;
        const uint32_t address = place(row, ((c.swap_ab ? mine.row : mine.col) % kCtas * tile_d_cols(c) + col) / kHeld);
#pragma unroll
        for (int32_t n = 0; n < kCtas; ++n)
#pragma unroll
            for (int32_t k = 0; k < c.k_ctas(); ++k) {
                const int32_t cta = run_cta_rank<c>(n, k);
                ptx::store_cluster_async(ptx::map_to_cta(address, cta), largest, ptx::map_to_cta(barrier, cta));
            }
    }
    /// The largest of what one thread reads, of `kThreads` that read it all.
    template <int32_t kThreads>
    DG_DEVICE float largest_of_run(int32_t row, int32_t col, int32_t thread) const {
        constexpr int32_t kCols = c.output_scaling.k, kParts = kCols / kHeld;
        const int32_t first = kCtas > 1 ? 0 : col / kCols * kParts;
        float largest = 0;
#pragma unroll
        for (int32_t i = 0; i < ceil_div(kParts, kThreads); ++i) {
            const int32_t part = i * kThreads + thread;
            if (kParts % kThreads == 0 || part < kParts)
                largest = ptx::max_or_nan(largest, ptx::load_shared(place(row, first + part)));
        }
        return largest;
    }

private:
    static constexpr int32_t kCtas = run_ctas(c);
    DG_DEVICE uint32_t place(int32_t row, int32_t part) const { return area + (part * c.tile_m() + row) * 4; }
};
#endif

}  // namespace deep_gemm
