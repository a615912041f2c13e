// Parts of a sum whose K is split: who adds up what, and what he is sent.
#pragma once

#include <deep_gemm/arch/sm90.cuh>

namespace deep_gemm {

/// Where K is split, the tile's rows are added up by 16: those of row warp w by part w % k_parts, a part being one
/// warpgroup of one CTA of the cluster. Returns how many such sums one CTA makes.
constexpr int32_t owned_row_warps(const GemmConfig& c) {
    return ceil_div(c.tile.rows / Fragment16x8::kRows, k_parts(c)) * c.split_k.warpgroups;
}

/// One warp's accumulators.
constexpr int32_t split_k_part_bytes(const GemmConfig& c) { return Fragment16x8::registers(c.tile.cols) * 32 * 4; }

/// What the owner of 16 rows is sent: every part but its own.
constexpr int32_t received_bytes(const GemmConfig& c) { return (k_parts(c) - 1) * split_k_part_bytes(c); }

/// Pieces of 16 rows of a tile that CTAs share (SplitK::last_tiles): by turns one CTA's and the other's.
constexpr int32_t shared_piece(const GemmConfig& c, int32_t warp, int32_t subtile) {
    return warp * (warpgroup_rows(c) / kWgmmaRows) + subtile;
}
constexpr int32_t shared_pieces(const GemmConfig& c) {
    return c.split_k.last_tiles ? c.tile.rows / Fragment16x8::kRows : 0;
}

/// What the owners of a CTA are sent, and the barriers that wait for it. (What a shared tile's owners are sent goes
/// where stages were, and one more barrier says when.)
constexpr int32_t parts_bytes(const GemmConfig& c) {
    return k_parts(c) == 1 ? 0 : owned_row_warps(c) * received_bytes(c);
}
constexpr int32_t part_barriers(const GemmConfig& c) {
    return c.split_k.last_tiles ? shared_pieces(c) / 2 + 1 : k_parts(c) == 1 ? 0 : owned_row_warps(c);
}

}  // namespace deep_gemm
