// Hopper: what would spill registers.
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>

#include "../quantised.hpp"
#include "../spills.hpp"
#include "schedule.hpp"

namespace deep_gemm::sm90 {

/// Whether a warpgroup has twice 64 rows.
inline bool is_tall(const GemmConfig& c) { return warpgroup_rows(c) > kWgmmaRows; }

/// Whether a thread has sums of a block beside those of all blocks.
inline bool has_two_sets(const GemmConfig& c) { return promotes_blocks(c) && !c.sm90.rescales; }

/// The same of operands that come as they are multiplied.
inline bool promotes_plain(const GemmConfig& c) { return has_two_sets(c) && !c.rows_operand().packed(); }

/// Registers of a thread for a warpgroup's sums of all blocks.
inline int32_t sums_of_thread(const GemmConfig& c) { return warpgroup_rows(c) / kWgmmaRows * c.tile.cols / 2; }

/// Most columns, of all 64 rows of a warpgroup together, of sums that zero points are taken out of: C, experts, bias,
/// shared tiles and gates keep registers of their own, and packed weights beside any of these.
inline int32_t most_asymmetric_cols(const GemmConfig& c) {
    if (c.scaled()) return is_tall(c) ? 0 : 128;
    const int32_t more =
        c.add_c + !has_fixed_extents(c.grouping) + (c.bias != Element::none) + c.split_k.last_tiles + 2 * c.gate.any();
    return more == 0 ? 256 : more == 1 && !c.rows_operand().packed() ? 208 : 160;
}

/// Registers of a thread for sums of each group of scales in a stage, and of all.
inline constexpr int32_t kGroupSums = 160;

inline constexpr SpillFamily kSpills[] = {
    {"it would spill registers: sums of each group of packed weights' scales",
     [](const Problem&, const GemmConfig& c) {
         return scale_groups(c) > 1 && c.rows_operand().packed() && !c.sm90.rescales &&
                (scale_groups(c) + 1) * c.tile.cols / 2 > kGroupSums;
     }},
    {"it would spill registers: packed weights' sums of last tiles that pairs share",
     [](const Problem&, const GemmConfig& c) {
         return c.rows_operand().packed() && has_two_sets(c) && c.split_k.last_tiles && c.tile.cols >= 160;
     }},
    {"it would spill registers: C beside packed weights with zero points, shared by a cluster",
     [](const Problem&, const GemmConfig& c) {
         return c.rows_operand().packed() && has_two_sets(c) && c.add_c && c.rows_operand().has_zeros() &&
                c.multicasts() && c.tile.cols >= 160;
     }},
    {"it would spill registers: groups, or activations of 16 bits, beside packed weights",
     [](const Problem&, const GemmConfig& c) {
         return c.rows_operand().packed() && has_two_sets(c) && c.tile.cols > 160 &&
                (!has_fixed_extents(c.grouping) || bits(c.cols_operand().element) == 16);
     }},
    {"it would spill registers: groups of columns' scales within a block",
     [](const Problem&, const GemmConfig& c) {
         return scale_groups(c) > 1 && !c.rows_operand().packed() && c.col_scales().per_row() && c.tile.cols > 160;
     }},
    {"it would spill registers: zero points",
     [](const Problem&, const GemmConfig& c) {
         return c.asymmetric_a && warpgroup_rows(c) / kWgmmaRows * c.tile.cols > most_asymmetric_cols(c);
     }},
    {"it would spill registers: a gate of scaled sums of three warpgroups",
     [](const Problem&, const GemmConfig& c) { return c.gate.any() && c.scaled() && row_warpgroups(c) == 3; }},
    {"it would spill registers: a gate of last tiles that pairs share",
     [](const Problem&, const GemmConfig& c) {
         return c.gate.any() && !c.scaled() && c.split_k.last_tiles && c.tile.cols > 224;
     }},
    {"it would spill registers: scales of D's rows, which are experts' and swapped",
     [](const Problem&, const GemmConfig& c) {
         return c.output_scaling.any() && c.swap_ab && is_m_grouped(c.grouping) && c.tile.cols > 96;
     }},
    {"it would spill registers: scaled sums of three warpgroups are quantised",
     [](const Problem&, const GemmConfig& c) {
         return c.output_scaling.any() && c.scaled() && row_warpgroups(c) == 3;
     }},
    {"it would spill registers: a large gate beside scaled sums of twice 64 rows",
     [](const Problem&, const GemmConfig& c) {
         return is_large(c.gate.kind) && c.scaled() && is_tall(c) && c.tile.cols >= 128;
     }},
    {"it would spill registers: a gate of packed weights' scaled sums",
     [](const Problem&, const GemmConfig& c) {
         return c.gate.any() && c.rows_operand().packed() && c.scaled() && c.tile.cols >= (has_two_sets(c) ? 192 : 256);
     }},
    {"it would spill registers: C beside a gate",
     [](const Problem&, const GemmConfig& c) {
         return c.gate.any() && c.add_c && ((is_tall(c) && c.tile.cols > 64) || c.tile.cols >= 160);
     }},
    {"it would spill registers: C beside wide sums of three warpgroups",
     [](const Problem&, const GemmConfig& c) {
         return !has_two_sets(c) && row_warpgroups(c) == 3 && c.tile.cols > 128 && c.add_c;
     }},
    {"it would spill registers: wide sums of three warpgroups, K in parts over a cluster",
     [](const Problem&, const GemmConfig& c) {
         return !has_two_sets(c) && row_warpgroups(c) == 3 && c.tile.cols > 128 && c.cluster.k > 1;
     }},
    {"it would spill registers: last tiles of 256x112 that pairs share",
     [](const Problem&, const GemmConfig& c) {
         return !has_two_sets(c) && is_tall(c) && c.split_k.last_tiles && c.tile.cols == 112;
     }},
    {"it would spill registers: a bias of groups",
     [](const Problem&, const GemmConfig& c) {
         return !has_two_sets(c) && c.bias != Element::none && !has_fixed_extents(c.grouping) && c.tile.cols > 224;
     }},
    {"it would spill registers: promoted sums of twice 64 rows are rounded at random",
     [](const Problem&, const GemmConfig& c) {
         return has_two_sets(c) && c.rounding == Rounding::at_random && is_tall(c) && c.tile.cols > 96;
     }},
    {"it would spill registers: steps with parameters, or random numbers, beside promoted sums",
     [](const Problem&, const GemmConfig& c) {
         return promotes_plain(c) && (has_step_params(c) || c.rounding == Rounding::at_random) &&
                (!c.gate.any() || c.block_sum() == Element::s32) &&
                ((is_tall(c) && c.tile.cols >= 128) || c.tile.cols >= 160);
     }},
    {"it would spill registers: promoted integers of groups, or times columns' scales",
     [](const Problem&, const GemmConfig& c) {
         return has_two_sets(c) && c.block_sum() == Element::s32 && c.tile.cols > 160 &&
                (c.col_scales().per_row() || !has_fixed_extents(c.grouping));
     }},
    {"it would spill registers: promoted sums of twice 64 rows times columns' scales",
     [](const Problem&, const GemmConfig& c) {
         return has_two_sets(c) && is_tall(c) && c.tile.cols > 64 && c.col_scales().per_row();
     }},
    {"it would spill registers: promoted sums of twice 64 rows stored as FP32, by threads, or by counts",
     [](const Problem&, const GemmConfig& c) {
         return has_two_sets(c) && is_tall(c) && c.tile.cols >= 128 &&
                (bits(c.output) == 32 || !is_staged(c.store) || c.grouping == Grouping::m_psum);
     }},
    {"it would spill registers: C that threads load beside both sets of sums",
     [](const Problem&, const GemmConfig& c) {
         return has_two_sets(c) && c.add_c && c.store.kind == StoreKind::direct && c.sm90.math_warpgroups > 1 &&
                sums_of_thread(c) + c.tile.cols / 2 >= math_registers(c) - 64;
     }},
    {kManySwappedScales,
     [](const Problem&, const GemmConfig& c) { return has_many_swapped_scales(c, fragment_d_cols(c)); }},
};

}  // namespace deep_gemm::sm90
