// Hopper: why a config cannot serve a problem.
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>

#include <string_view>

#include "../problem.hpp"
#include "../quantised.hpp"
#include "clusters.hpp"
#include "schedule.hpp"

namespace deep_gemm::sm90 {

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

/// Why a config cannot serve a problem, whatever its shared memory holds; empty where it may.
inline std::string_view rejection(const Problem& p, const GemmConfig& c, int64_t tiles) {
    if (c.cluster.size() > p.num_sms) return "the cluster is larger than the SMs allowed";
    if (c.tile_m() % p.block_m_multiple != 0 || c.tile_n() % p.block_n_multiple != 0)
        return "set_block_size_multiple_of asks for other tiles";
    if (c.gate.any() && c.tile_n() / (c.swap_ab ? c.cluster.cols : c.cluster.rows) % (2 * kGateCols) != 0)
        return "columns do not divide into groups of 8 gates and 8 ups";
    if (c.rows_operand().packed() && (c.cluster.cols > 1 || warpgroup_rows(c) > kWgmmaRows))
        return "packed weights are converted for 64 rows at a time, by one CTA";
    if (scale_groups(c) > 1 && warpgroup_rows(c) > kWgmmaRows)
        return "groups of scales within a K block are promoted for 64 rows at a time";
    if (const std::string_view reason = group_rejection(p, c); !reason.empty()) return reason;
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
    // They spill no more; most take 1.00 to 1.11 of the time (h200_constants.json).
    if (promotes_blocks(c) && c.grouping == Grouping::m_psum && c.tile.cols == 192)
        return "beside a walk by counts 192 columns gain nothing on 128";
    return "";
}

}  // namespace deep_gemm::sm90
