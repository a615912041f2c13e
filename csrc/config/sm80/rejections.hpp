// SM80: why a config cannot serve a problem.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>

#include <string_view>

#include "../problem.hpp"
#include "../quantised.hpp"
#include "tiles.hpp"

namespace deep_gemm::sm80 {

/// Why groups cannot be served by a config; empty where they can.
inline std::string_view group_rejection(const Problem& p, const GemmConfig& c) {
    if (c.sm80.k_warps > 1 && (divides_k(p.grouping) || (is_m_grouped(p.grouping) && c.sum() != Element::s32)))
        return "groups do not split K";  // a row's bits would depend on how many there are
    if (!is_m_grouped(p.grouping) || p.grouping == Grouping::masked) return "";
    // Behind an expert's last rows a tile may hold another's.
    return p.m_alignment % c.tile_m() == 0 ? "" : "the tile's height does not divide the experts' alignment";
}

/// Rows of packed weights that follow each other in every expert: what they are padded to, or twice that where an even
/// number of such blocks is asked for (checks_gate.cpp).
constexpr int32_t packed_rows(const Problem& p) { return has_long_runs(p) ? 2 * kPackedRowsPadded : kPackedRowsPadded; }

/// Why a config cannot serve a problem, whatever its shared memory holds; empty where it may.
inline std::string_view rejection(const Problem& p, const GemmConfig& c) {
    if (c.tile_m() % p.block_m_multiple != 0 || c.tile_n() % p.block_n_multiple != 0)
        return "set_block_size_multiple_of asks for other tiles";
    if ((c.rows_operand().mn_major() && c.tile.rows % kMnBlock != 0) ||
        (c.cols_operand().mn_major() && c.tile.cols % kMnBlock != 0))
        return "an MN-major operand is copied in blocks of 64";
    if (c.gate.any() && (c.swap_ab ? warp_rows(c) : warp_cols(c)) % (2 * kGateCols) != 0)
        return "columns do not divide into groups of 8 gates and 8 ups";
    if (p.b.packed() && (!c.swap_ab || c.tile.rows > packed_rows(p)))
        return "packed weights are rows of a tile, no more than come together";
    if (warps(c) > kMaxWarps || warp_sums(c) > most_sums(p, c.sm80.k_warps))
        return "sums take more registers than a warp has";
    if (const std::string_view reason = quantise_rejection(c, fragment_d_cols(c), false); !reason.empty())
        return reason;
    if (c.sm80.k_warps > 1 && p.batch_invariant && c.sum() != Element::s32)
        return "a split K depends on M, and set_batch_invariant forbids that";
    if (c.sm80.k_warps > 1 && (c.rows_operand().mn_major() || c.cols_operand().mn_major()))
        return "warps that split K want K-major operands";
    return group_rejection(p, c);
}

inline std::string_view smem_rejection(const GemmConfig& c) {
    return c.stages < 2 ? "fewer than two stages fit shared memory" : "";
}

/// What a legal config would waste; empty where it may be the best.
inline std::string_view waste(const Problem& p, const GemmConfig& c) {
    const int32_t m = expected_group_rows(p), rows = c.swap_ab ? p.n : m, cols = c.swap_ab ? m : p.n;
    if (c.tile.rows > 16 && c.tile.rows >= 2 * align_up(rows, 16)) return "half of the rows would be empty";
    if (c.tile.cols > 8 && c.tile.cols >= 2 * align_up(cols, 8)) return "half of the columns would be empty";
    return "";
}

}  // namespace deep_gemm::sm80
