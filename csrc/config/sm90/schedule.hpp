// Hopper: how math warpgroups go through their K blocks.
#pragma once

#include <deep_gemm/arch/sm90_loop.cuh>

#include <optional>

#include "../problem.hpp"

namespace deep_gemm::sm90 {

/// Tiles in which the tensor cores may form the products of row and column scales: of 64 columns and more. They take
/// a third accumulator, which leaves no registers for more than 128.
inline constexpr int32_t kProductRows = 128, kMinProductCols = 64, kMaxProductCols = 128;

/// Whether all tiles of a problem must be such ones. The last bits of products by the tensor cores are not those that a
/// multiplication gives, and tiles change with M. So where a row's bits may not, gradients have only such tiles, with
/// operands as they are (swapped ones' parts of scales may be added up in another order), and other calls, which may
/// have few rows, none. Nor have gradients where set_block_size_multiple_of leaves none.
inline bool only_tiles_with_products(const Problem& p) {
    const bool gradient = divides_k(p.grouping) || (p.grouping == Grouping::dense && adds_in_place(p)),
               scaled_by_row = p.a.element == Element::e4m3 && p.a.scaling == kRowScales && p.b.scaling == kRowScales;
    if (!p.batch_invariant || !gradient || !scaled_by_row || p.b.packed() || kProductRows % p.block_m_multiple != 0)
        return false;
    for (int32_t cols = kMinProductCols; cols <= kMaxProductCols; cols += 16)
        if (cols % p.block_n_multiple == 0) return true;
    return false;
}

/// Whether the tensor cores form the products of scales. Never in calls grouped along M, whose rows' bits must not
/// depend on the tile.
inline bool multiplies_scales(const Problem& p, const GemmConfig& c) {
    if (p.batch_invariant && (c.swap_ab || !only_tiles_with_products(p))) return false;
    return !is_m_grouped(c.grouping) && !c.gate.any() && c.a.element == Element::e4m3 && c.row_scales().per_row() &&
           c.col_scales().per_row() && scale_groups(c) == 1 && !c.rows_operand().packed() &&
           c.tile.rows == kProductRows && c.tile.cols >= kMinProductCols && c.tile.cols <= kMaxProductCols &&
           k_parts(c) == 1;
}

/// Whether one set of sums may serve groups of K with scales of their own (mma/sm90/rescale.cuh): of packed weights
/// beside BF16, whose exponents a scale's power of two goes into. It has other last bits than two sets, so only where
/// none are promised: experts' rows have theirs whatever the tile.
inline bool may_rescale(const Problem& p) {
    return p.b.packed() && p.a.element == Element::bf16 && p.b.scaling.per_row() && !p.b.scaling.in_conversion() &&
           p.grouping == Grouping::dense && !p.batch_invariant;
}

/// Up to so many columns two sets are faster: one is promoted while the other is added to, and no scale is taken apart
/// (docs/notes/packed-speed.md).
inline constexpr int32_t kMaxColsOfTwoSets = 64;

/// Whether the tensor cores may add up all of K, and sums are scaled when they are complete: of packed weights beside
/// FP8 whose rows have one scale for all of K, where the caller takes their own accumulation
/// (`set_fast_accumulation`). Which tiles do changes with M.
inline bool may_promote_once(const Problem& p) {
    return p.fast_accumulation && !p.batch_invariant && p.b.packed() && p.b.near_scales &&
           p.a.element == Element::e4m3 && !GemmTask::scales_blocks(p.a.scaling) && p.b.scaling == kRowScales;
}

/// From so many columns on promotion of each K block takes longer than is hidden beside conversion
/// (docs/notes/packed-speed.md).
inline constexpr int32_t kMinColsPromotedOnce = 64;

/// Whether warpgroups look for their next stage early, and a tile is stored under the next one's first wgmma
/// (docs/notes/tried.md).
inline bool looks_ahead(const GemmConfig& c) {
    if (!c.scaled() || overlaps_blocks(c) || k_parts(c) > 1 || c.rows_operand().packed()) return false;
    if (scale_groups(c) > 1) return false;
    // Sums of integers are converted before their scales come: a stage could not be let go behind the next issue.
    if (c.block_sum() == Element::s32 && c.col_scales().per_row()) return false;
    if (warpgroup_rows(c) > kWgmmaRows) return true;
    if (c.sm90.math_warpgroups != 2) return false;
    if (c.row_scales().per_row() && c.col_scales().per_row()) return c.sm90.wgmma_products;
    return c.tile.cols >= 144;
}

/// Experts whose padding may hold anything; in a psum layout it becomes zero, which needs registers that the highest
/// tiles do not have.
inline bool has_experts(const GemmConfig& c) {
    return c.grouping == Grouping::m_contiguous || c.grouping == Grouping::masked;
}

/// Whether 64 rows of nothing but padding are left out. It is for two warpgroups of twice 64 rows: with 64 rows each,
/// the one that has work would be no faster. (Of an FP16 D, and of integers, ptxas makes the sums that are passed by a
/// select of each in every round.)
inline bool skips_padding(const GemmConfig& c) {
    return has_experts(c) && c.output != Element::fp16 && c.block_sum() != Element::s32 && !c.swap_ab &&
           c.sm90.look_ahead && c.tile == TileShape{4 * kWgmmaRows, 128, 128} && row_warpgroups(c) == 2 &&
           c.col_scales().per_block() && is_staged(c.store) && !c.add_c;
}

/// Of so many of promotion's FFMA one lets the scheduler turn to another warp (csrc/jit/sm90/ffma_yields.hpp; 0: none
/// does); nothing: as ptxas has it. By how a K block goes (docs/notes/tried.md, "FFMA that yield").
inline std::optional<int32_t> ffma_yields(const GemmConfig& c) {
    const bool by_block = c.row_scales().per_block() || c.col_scales().per_block();
    if (c.sm90.wgmma_products) return 2;
    if (scale_groups(c) > 1) return std::nullopt;
    // Where no side has scales per row, all factors of a run are one number, of a uniform register: another FFMA.
    if (!c.scaled() || !by_block || !(c.row_scales().per_row() || c.col_scales().per_row())) return std::nullopt;
    if (warpgroup_rows(c) > kWgmmaRows) return 8;
    if (row_warpgroups(c) == 3) return 3;
    if (overlaps_blocks(c) && row_warpgroups(c) == 2 && c.tile.cols >= 48) return c.tile.cols < 128 ? 6 : 8;
    return std::nullopt;
}

}  // namespace deep_gemm::sm90
