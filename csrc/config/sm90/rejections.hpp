// Hopper: why a config cannot serve a problem.
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>

#include <string_view>

#include "../problem.hpp"
#include "../quantised.hpp"
#include "clusters.hpp"
#include "schedule.hpp"

namespace deep_gemm::sm90 {

/// Most columns, of all 64 rows of a warpgroup together, of sums that zero points are taken out of: C, experts, bias,
/// shared tiles and gates keep registers of their own, and packed weights beside any of these.
inline int32_t most_asymmetric_cols(const GemmConfig& c) {
    if (c.scaled()) return warpgroup_rows(c) > kWgmmaRows ? 0 : 128;
    const int32_t more =
        c.add_c + !has_fixed_extents(c.grouping) + (c.bias != Element::none) + c.split_k.last_tiles + 2 * c.gate.any();
    return more == 0 ? 256 : more == 1 && !c.rows_operand().packed() ? 208 : 160;
}

/// Whether loads of C beside both accumulators, or what FP32 stores, group tables, pairs and shared tiles keep, take
/// more registers than a thread has (ptxas -v, CUDA 13.0, scales per row). Where twice 64 rows a warpgroup meet scales
/// per row of more than 64 columns, some do and the others move descriptors. Three warpgroups of K groups spill where D
/// has 16 bits, without C.
inline bool spills(const GemmConfig& c) {
    const bool tall = warpgroup_rows(c) > kWgmmaRows, wide = tall && c.tile.cols >= 128;
    const bool two_sets = promotes_blocks(c) && !c.sm90.rescales;
    if (c.rows_operand().packed() && two_sets &&
        (((c.split_k.last_tiles || (c.add_c && c.rows_operand().has_zeros() && c.multicasts())) &&
          c.tile.cols >= 160) ||
         ((!has_fixed_extents(c.grouping) || bits(c.cols_operand().element) == 16) && c.tile.cols > 160)))
        return true;
    if (scale_groups(c) > 1 && !c.rows_operand().packed() && c.col_scales().per_row() && c.tile.cols > 160) return true;
    if (c.asymmetric_a && warpgroup_rows(c) / kWgmmaRows * c.tile.cols > most_asymmetric_cols(c)) return true;
    if (c.gate.any() && (c.scaled() ? row_warpgroups(c) == 3 : c.split_k.last_tiles && c.tile.cols > 224)) return true;
    if (c.output_scaling.any() &&
        ((c.swap_ab && is_m_grouped(c.grouping) && c.tile.cols > 96) || (c.scaled() && row_warpgroups(c) == 3)))
        return true;
    if (is_large(c.gate.kind) && c.scaled() && wide) return true;
    if (c.gate.any() && c.output_scaling.any() && tall && c.swap_ab && c.tile.cols > 64) return true;
    if (c.gate.any() && c.rows_operand().packed() && c.scaled() && c.tile.cols >= (two_sets ? 192 : 256)) return true;
    if (c.gate.any() && c.add_c && ((tall && c.tile.cols > 64) || c.tile.cols >= 160)) return true;
    if (!two_sets)
        return (row_warpgroups(c) == 3 && c.tile.cols > 128 && (c.add_c || c.cluster.k > 1)) ||
               warpgroup_rows(c) / kWgmmaRows * c.tile.cols / 2 > 128 ||
               (tall && c.split_k.last_tiles && c.tile.cols == 112) ||
               (c.bias != Element::none && !has_fixed_extents(c.grouping) && c.tile.cols > 224);
    if (c.random_rounding && tall && c.tile.cols > 96) return true;
    if ((has_step_params(c) || c.random_rounding) && (!c.gate.any() || c.block_sum() == Element::s32) &&
        !c.rows_operand().packed() && (wide || c.tile.cols >= 160))
        return true;
    if (c.block_sum() == Element::s32 && c.tile.cols > 160 &&
        (c.col_scales().per_row() || !has_fixed_extents(c.grouping)))
        return true;
    if (tall && c.tile.cols > 64 && c.col_scales().per_row()) return true;
    if (wide && (bits(c.output) == 32 || !is_staged(c.store) || c.grouping == Grouping::m_psum)) return true;
    if (c.grouping == Grouping::m_psum && c.tile.cols >= 160) return true;
    if (c.grouping == Grouping::k_contiguous && bits(c.output) == 16 && row_warpgroups(c) == 3) return true;
    const int32_t accumulators = (warpgroup_rows(c) / kWgmmaRows + 1) * c.tile.cols / 2;
    return c.add_c && c.store.kind == StoreKind::direct && c.sm90.math_warpgroups > 1 &&
           accumulators >= math_registers(c) - 64;
}

/// Why groups cannot be served by a config; empty where they can.
inline std::string_view group_rejection(const Problem& p, const GemmConfig& c) {
    if (has_fixed_extents(p.grouping)) return "";
    if (k_parts(c) > 1) return "groups do not split K";
    if (!is_m_grouped(p.grouping)) return "";
    if (c.cluster_m() > 1) return "neighbours along M may belong to different experts";
    if (p.grouping == Grouping::masked) return "";
    // Behind an expert's last rows a tile may hold another's.
    const bool divides = p.m_alignment % c.tile_m() == 0,
               ends_with_expert = p.grouping == Grouping::m_contiguous && !c.swap_ab && row_warpgroups(c) != 3;
    if (!is_staged(c.store) && has_expert_runs(c) && c.tile_m() > 2 * kWgmmaRows)
        return "a tile of so many rows of experts is stored by the copy engine";
    if (divides && (!ends_with_expert || c.tile_m() <= 2 * kWgmmaRows)) return "";
    if (!ends_with_expert) return "the tile's height does not divide the experts' alignment";
    if (p.m_alignment % kWgmmaRows != 0) return "experts do not start at multiples of 64 rows";
    if (!is_staged(c.store)) return "a tile that ends with its expert is stored by the copy engine";
    if (!has_expert_runs(c)) return "more runs of rows than shared memory has room for";
    return "";
}

/// Registers of a thread for sums of each group of scales in a stage, and of all.
inline constexpr int32_t kGroupSums = 160;

/// Why a config cannot serve a problem, whatever its shared memory holds; empty where it may.
inline std::string_view rejection(const Problem& p, const GemmConfig& c, int64_t tiles) {
    if (c.cluster.size() > p.num_sms) return "the cluster is larger than the SMs allowed";
    if (c.tile_m() % p.block_m_multiple != 0 || c.tile_n() % p.block_n_multiple != 0)
        return "set_block_size_multiple_of asks for other tiles";
    if (c.gate.any() && c.tile_n() / (c.swap_ab ? c.cluster.cols : c.cluster.rows) % (2 * kGateCols) != 0)
        return "columns do not divide into groups of 8 gates and 8 ups";
    if (c.rows_operand().packed() && (c.cluster.cols > 1 || warpgroup_rows(c) > kWgmmaRows))
        return "packed weights are converted for 64 rows at a time, by one CTA";
    if (scale_groups(c) > 1 && c.rows_operand().packed() && !c.sm90.rescales &&
        (scale_groups(c) + 1) * c.tile.cols / 2 > kGroupSums)
        return "sums of each group of scales take more registers";
    if (scale_groups(c) > 1 && warpgroup_rows(c) > kWgmmaRows)
        return "groups of scales within a K block are promoted for 64 rows at a time";
    if (const std::string_view reason = group_rejection(p, c); !reason.empty()) return reason;
    if (spills(c)) return "it would spill registers";
    // A CTA that others tell something has a warp that waits for it: one that owns rows.
    const RunReach reach = {.ctas = c.cluster_n(),
                            .parts_of_k = !c.split_k.last_tiles && k_parts(c) <= c.tile.rows / Fragment16x8::kRows};
    if (const std::string_view reason =
            quantise_rejection(c, fragment_d_cols(c), k_parts(c) > 1 || c.split_k.last_tiles, reach);
        !reason.empty())
        return reason;
    if (c.scaled() && c.block_sum() == Element::s32 && warpgroup_rows(c) > kWgmmaRows) {
        if (c.swap_ab) return "it would move wgmma's descriptors";
        if (c.col_scales().per_row()) return "sums of integers times scales per row want one accumulator a warpgroup";
    }
    const int32_t rows = c.swap_ab ? p.n : p.m, cols = c.swap_ab ? p.m : p.n;
    if (c.cluster.rows > 1 && ceil_div(rows, c.tile.rows) % c.cluster.rows != 0)
        return "row blocks do not divide into clusters";
    if (c.cluster.cols > 1 && ceil_div(cols, c.tile.cols) % c.cluster.cols != 0)
        return "column blocks do not divide into clusters";
    if (c.cluster.rows > 1 && c.tile.cols / c.cluster.rows % 8 != 0)
        return "columns do not divide into multicast slices";
    if ((c.rows_operand().mn_major() && c.tile.rows / c.cluster.cols % kMnBlock != 0) ||
        (c.cols_operand().mn_major() && c.tile.cols / c.cluster.rows % kMnBlock != 0))
        return "an MN-major operand is copied in blocks of 64";
    if ((k_parts(c) > 1 || c.split_k.last_tiles) && p.batch_invariant && c.sum() != Element::s32)
        return "a split K depends on M, and set_batch_invariant forbids that";
    if (only_tiles_with_products(p) && !c.sm90.wgmma_products)
        return "the tensor cores multiply scales, and set_batch_invariant asks for equal bits from all tiles";
    if (k_parts(c) > 1 && warpgroup_rows(c) > kWgmmaRows) return "a split K wants one accumulator a warpgroup";
    if (k_parts(c) > 1 && tiles * c.cluster.size() > resident_ctas(p.num_sms, c.cluster.size()))
        return "a split K wants all tiles at once";
    if (c.split_k.last_tiles && shared_tiles(c, tiles, resident_ctas(p.num_sms, c.cluster.size())) == 0)
        return "no last tiles that pairs could share";
    const int32_t parts = c.cluster.k * c.split_k.warpgroups;
    if (parts > 1 && ceil_div(p.k, c.tile.k) < 3 * parts) return "less than three K blocks for each part of K";
    if (c.sm90.math_warpgroups > 3) return "more than three math warpgroups";
    return "";
}

/// Why its shared memory does not do.
inline std::string_view smem_rejection(const GemmConfig& c) {
    if (c.stages < 2) return "fewer than two stages fit shared memory";
    if (c.split_k.warpgroups > 1 && c.stages < 3 * c.split_k.warpgroups)
        return "fewer than three stages for each turn fit";
    return "";
}

/// Why a config that could serve a problem is not worth a thought, if there are others; empty where it is.
inline std::string_view waste(const Problem& p, const GemmConfig& c) {
    const int32_t rows = c.swap_ab ? p.n : expected_group_rows(p);
    if (c.tile.rows >= 2 * align_up(rows, kWgmmaRows)) return "rows twice what the problem has";
    if (c.store.kind == StoreKind::tma_add && !c.swap_ab && c.tile.cols * sizeof(float) % kSwizzleBytes != 0)
        return "every second tile would begin within a line of the D that it is added to";
    return "";
}

}  // namespace deep_gemm::sm90
