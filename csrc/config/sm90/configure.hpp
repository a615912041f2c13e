// Hopper: what becomes of a tiling.
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>

#include "../candidate.hpp"
#include "../staging.hpp"
#include "clusters.hpp"
#include "schedule.hpp"
#include "tiles.hpp"

namespace deep_gemm::sm90 {

/// Runs of experts' rows in a contiguous layout whose table leaves room for four stages: some 97,000 rows of experts
/// aligned to 128.
inline constexpr int32_t kMaxRuns = 768;

/// Room in the table of groups: few different ones, so that a model has few kernels. A run of rows takes at least the
/// experts' alignment. None where the layout itself tells a tile's expert.
inline int32_t group_capacity(const Problem& p, const GemmConfig& c) {
    if (p.grouping == Grouping::m_contiguous) {
        if (c.tile_m() % kWgmmaRows != 0 || p.m_alignment % kWgmmaRows != 0) return 0;
        // Of the 64 rows that stand together in a block, every other may be nothing but padding.
        const int32_t block_runs = ceil_div(p.m_alignment / kWgmmaRows, 2);
        const int32_t runs = align_up(ceil_div(p.m, p.m_alignment) * block_runs, 256);
        return runs <= kMaxRuns ? runs : 0;
    }
    return table_capacity(p, c);
}

/// Whether pairs split K of the last tiles only.
inline bool shares_last(const Problem& p, const GemmConfig& c) {
    return c.grouping == Grouping::dense && c.cluster.k == 2 && c.split_k.warpgroups == 1 &&
           (tile_count(p, c) * c.cluster.k > resident_ctas(p.num_sms, c.cluster.size()) || shares_only(c.tile));
}

/// A config without stages.
inline GemmConfig configure(const Problem& p, const Tiling& tiling) {
    const TileShape tile{tiling.tile_rows, tiling.tile_cols, stage_k(p, tiling)};
    GemmConfig c{
        task_of(p),
        p,
        {.swap_ab = tiling.swap_ab,
         .tile = tile,
         .cluster = tiling.cluster,
         .split_k = {.warpgroups = tiling.k_warpgroups},
         .stages = 0,
         .store = {.kind = store_kind(p, elements_in(p.output, kSwizzleBytes))},  // the widest chunks of any tile
         .tensor_core_percent = p.tensor_core_percent,
         .group_maps = p.group_maps != 0},
        Arch::sm90,
        {},
        {.math_warpgroups = row_warpgroups(tile) * tiling.k_warpgroups}};
    if (adds_to_memory(c.store)) c.add_c = false;
    if (c.gate.any() && c.swap_ab) c.store.kind = StoreKind::direct;  // 8 columns of D a warp
    c.group_capacity = group_capacity(p, c);
    c.split_k.last_tiles = shares_last(p, c);
    c.sm90.wgmma_products = multiplies_scales(p, c);
    c.sm90.rescales = may_rescale(p) && c.tile.cols > kMaxColsOfTwoSets;
    c.sm90.promotes_once = may_promote_once(p) && c.tile.cols >= kMinColsPromotedOnce;
    c.sm90.look_ahead = looks_ahead(c);
    c.skips_padding = skips_padding(c);
    return c;
}

}  // namespace deep_gemm::sm90
