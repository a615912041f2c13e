// SM80: what would spill registers, also for SM120, where ptxas takes some more.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>

#include "../quantised.hpp"
#include "../spills.hpp"
#include "tiles.hpp"

namespace deep_gemm::sm80 {

constexpr bool is_for_sm120(const Problem& p) { return p.target >= 120; }

constexpr int32_t sums_of_warp(const GemmConfig& c) { return warp_rows(c) * warp_cols(c); }

/// Sums of a warp beside which not much else finds room.
constexpr bool has_many_sums(const GemmConfig& c) { return sums_of_warp(c) >= 64 * 32; }
constexpr bool has_most_sums(const GemmConfig& c) { return sums_of_warp(c) >= 64 * 64; }

/// Whether scales of both operands' rows are in registers.
constexpr bool scales_all_rows(const GemmConfig& c) { return c.row_scales().per_row() && c.col_scales().per_row(); }

inline constexpr SpillFamily kSpills[] = {
    {"it would spill registers: most sums of experts' integers are quantised",
     [](const Problem& p, const GemmConfig& c) {
         return !is_for_sm120(p) && c.output_scaling.any() && c.block_sum() == Element::s32 &&
                is_m_grouped(c.grouping) && has_most_sums(c);
     }},
    {"it would spill registers: integers are promoted, gated and quantised over 256 rows of weights",
     [](const Problem& p, const GemmConfig& c) {
         return p.target >= 100 && c.quantises_gates() && c.block_sum() == Element::s32 && promotes(c) &&
                (c.swap_ab ? c.tile.cols == 64 && c.tile.rows == 256 : c.tile.cols == 256);
     }},
    {"it would spill registers: most sums beside experts' E4M3 that is converted",
     [](const Problem& p, const GemmConfig& c) {
         return !promotes(c) && c.b.element == Element::e4m3p && is_for_sm120(p) && has_most_sums(c) &&
                is_m_grouped(c.grouping);
     }},
    {"it would spill registers: most sums beside 8 bits that are converted to 16",
     [](const Problem&, const GemmConfig& c) {
         return !promotes(c) && c.b.element == Element::s8b && has_most_sums(c) &&
                (c.tile.cols > 128 || (is_m_grouped(c.grouping) && c.grouping != Grouping::masked));
     }},
    {"it would spill registers: a stage of four groups of scales",
     [](const Problem&, const GemmConfig& c) {
         return promotes(c) && has_many_sums(c) && !c.b.packed() && scale_groups(c) > 2;
     }},
    {"it would spill registers: a stage of four groups of all rows' scales, and a warp that copies",
     [](const Problem&, const GemmConfig& c) {
         return promotes(c) && widens_both(c) && scale_groups(c) > 2 && scales_all_rows(c) && has_copy_warp(c) &&
                sums_of_warp(c) >= 64 * 8;
     }},
    {"it would spill registers: integers of 64 columns a warp times all rows' scales",
     [](const Problem& p, const GemmConfig& c) {
         return promotes(c) && p.target >= 100 && c.block_sum() == Element::s32 && !c.b.packed() &&
                scales_all_rows(c) && warp_cols(c) >= 64;
     }},
    {"it would spill registers: many sums of experts by many warps",
     [](const Problem& p, const GemmConfig& c) {
         return !is_for_sm120(p) && promotes(c) && warps(c) > 4 && has_many_sums(c) && is_m_grouped(c.grouping) &&
                (widens_both(c) || scales_all_rows(c));
     }},
    {"it would spill registers: many sums of experts times rows' scales",
     [](const Problem& p, const GemmConfig& c) {
         return promotes(c) && warps(c) <= 4 && !widens(c, c.b) && p.target >= 100 && has_many_sums(c) &&
                is_m_grouped(c.grouping) && (c.row_scales().per_row() || c.col_scales().per_row()) && !c.b.packed();
     }},
    {"it would spill registers: 64 columns a warp that are converted, with scales of their own or a divided K",
     [](const Problem&, const GemmConfig& c) {
         return promotes(c) && warps(c) <= 4 && widens(c, c.b) && warp_cols(c) >= 64 &&
                (c.col_scales().per_row() || c.sm80.k_warps > 1);
     }},
    {"it would spill registers: many sums of experts that are converted, times all rows' scales",
     [](const Problem&, const GemmConfig& c) {
         return promotes(c) && warps(c) <= 4 && widens(c, c.b) && warp_cols(c) < 64 && has_many_sums(c) &&
                is_m_grouped(c.grouping) && scales_all_rows(c);
     }},
    {kManySwappedScales,
     [](const Problem&, const GemmConfig& c) { return has_many_swapped_scales(c, fragment_d_cols(c)); }},
};

}  // namespace deep_gemm::sm80
