// The end of a tile without the copy engine, where a warpgroup holds 64 rows of it.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/epilogue/step.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/store/fragment.cuh>
#include <deep_gemm/store/padding_rows.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
using PaddingRows = PaddingRowsOf<c, Smem<c>>;

/// The first row in the tile of 16 that a math warp has, of the `subtile`th 64 rows of its warpgroup.
template <Constant<GemmConfig> c>
DG_DEVICE int32_t row_in_tile(int32_t warp, int32_t subtile) {
    return first_row(c, warp / 4) + subtile * subtile_step(c) + Fragment16x8::warp_row(warp);
}

/// Rows of padding among a math warp's 16 of a tile, which are some columns of all rows where operands are swapped.
template <Constant<GemmConfig> c>
struct WarpPadding {
    const PaddingRows<c>& rows;
    int32_t subtile;

    template <typename Place, typename Visit>
    DG_DEVICE void for_each_value(const Place& at, const Tile&, const Visit& visit) const {
        at.for_each_marked(rows, c.swap_ab ? 0 : row_in_tile<c>(threadIdx.x / 32, subtile), visit);
    }
};

/// Asks the L2 for this warp's part of C, or of a D that is added to, so that nobody waits for memory at the end of the
/// tile.
template <Constant<GemmConfig> c, typename Stored>
DG_DEVICE void fetch_lines(const Tile& tile, const Stored* data, int64_t stride, int64_t group_stride,
                           const GemmParams& params) {
    // In D's frame, this warp's block of the tile: its rows, or so many columns of D where operands are swapped.
    constexpr int32_t kLines = c.swap_ab ? 1 : ceil_div(c.tile.cols * static_cast<int32_t>(sizeof(Stored)), 128);
    constexpr int32_t kRows = c.swap_ab ? c.tile.cols : Fragment16x8::kRows;
    const int32_t m_end = extent_m<c>(params), n_end = extent_n<c>(params), warp = threadIdx.x / 32;
    const Stored* group = data + group_of_d<c>(tile) * group_stride;
    for (int32_t subtile = 0; subtile < warpgroup_rows(c) / kWgmmaRows; ++subtile) {
        const int32_t own = tile.row + row_in_tile<c>(warp, subtile);
        const int32_t row = c.swap_ab ? tile.col : own, col = c.swap_ab ? own : tile.col;
#pragma unroll
        for (int32_t i = threadIdx.x % 32; i < kRows * kLines; i += 32) {
            const int32_t y = row + i / kLines, x = col + i % kLines * (128 / static_cast<int32_t>(sizeof(Stored)));
            if (y < m_end && x < n_end) ptx::prefetch_l2(group + y * stride + x);
        }
    }
}

/// A math warp's part where D goes out from registers: the same interface as OwnStores and HandedStores
/// (store/sm90/staged.cuh).
template <Constant<GemmConfig> c>
struct DirectStores {
    DG_DEVICE explicit DirectStores(const Smem<c>&) {}
    DG_DEVICE void begin() const {}
    DG_DEVICE void write(const Results<c>& total, const Fragment<c>& at, const Tile&, int32_t,
                         const GemmParams& params) const {
        if constexpr (c.gate.any() && c.swap_ab)
            PlaceOfD<Fragment<c>>(at).store(total, params);
        else if constexpr (c.gate.any())
            store_direct<ConfigParts<c>::kBehindGate>(total, PlaceOfD<Fragment<c>>(at), params);
        else
            store_direct<c>(total, at, params);
    }
    DG_DEVICE void end() const {}
    DG_DEVICE void finish() const {}
};

}  // namespace deep_gemm
