// From a problem to a config: enumerate, reject with a reason, rank by estimated cost. Pure: no device, no environment,
// no state.
#pragma once

#include <algorithm>
#include <bit>
#include <string_view>
#include <vector>

#include "../util/require.hpp"
#include "fields.hpp"
#include "problem.hpp"
#include "sm90/clusters.hpp"
#include "sm90/cost.hpp"
#include "sm90/l2.hpp"
#include "sm90/refusals.hpp"
#include "sm90/schedule.hpp"
#include "sm90/stages.hpp"
#include "sm90/tiles.hpp"

namespace deep_gemm {

/// What candidates of a problem differ in; all else of a config follows from it and the problem.
struct Tiling {
    bool swap_ab = false;
    int32_t tile_rows = 0, tile_cols = 0;
    ClusterShape cluster = {};
    int32_t turns = 1;  // GemmConfig::k_warpgroups
};
template <>
inline constexpr auto kFieldsOf<Tiling> = std::tuple{
    Field{"swap_ab", &Tiling::swap_ab}, Field{"tile_rows", &Tiling::tile_rows}, Field{"tile_cols", &Tiling::tile_cols},
    Field{"cluster", &Tiling::cluster}, Field{"turns", &Tiling::turns}};

constexpr Tiling tiling_of(const GemmConfig& c) {
    return {.swap_ab = c.swap_ab,
            .tile_rows = c.tile.rows,
            .tile_cols = c.tile.cols,
            .cluster = c.cluster,
            .turns = c.k_warpgroups};
}

/// A config with what its launch needs and what selection thinks of it.
struct Candidate {
    GemmConfig config = {};
    int32_t num_ctas = 0;
    int32_t strip_blocks = 1;
    bool by_gpc = false;  // clusters walk where sm90::places_by_gpc says, else as they come
    double cost_us = 0;
    std::string_view refusal = {};  // why not, a literal; empty for a legal candidate
};

/// As many stages as shared memory holds, each turn having the same number; more than 16 buy nothing.
inline int32_t most_stages(GemmConfig config) {
    config.stages = 0;
    const int32_t without = plan_smem(config).bytes;
    config.stages = 1;
    const int32_t of_each = plan_smem(config).bytes - without;
    const int32_t stages = std::clamp((kMaxSmemBytes - without) / of_each, 0, 16);
    return stages - stages % config.k_warpgroups;
}

/// Runs of experts' rows in a contiguous layout whose table leaves room for four stages: some 97,000 rows of experts
/// aligned to 128.
inline constexpr int32_t kMostRuns = 768;

/// Why groups cannot be served by a config; empty where they can.
inline std::string_view group_refusal(const Problem& p, const GemmConfig& c) {
    if (p.grouping == Grouping::dense) return "";
    if (c.k_parts() > 1) return "groups do not split K";
    if (!is_m_grouped(p.grouping)) return "";
    if (c.cluster_m() > 1) return "neighbours along M may belong to different experts";
    if (p.grouping == Grouping::masked) return "";
    // Behind an expert's last rows a tile may hold another's. (For three warpgroups that was never worth while.)
    const bool divides = p.m_alignment % c.tile_m() == 0,
               ends_with_expert = p.grouping == Grouping::m_contiguous && !c.swap_ab && c.row_warpgroups() != 3;
    if (divides && (!ends_with_expert || c.tile_m() <= 2 * kWgmmaRows)) return "";
    if (!ends_with_expert) return "the tile's height does not divide the experts' alignment";
    if (p.m_alignment % kWgmmaRows != 0) return "experts do not start at multiples of 64 rows";
    if (!is_staged(c.store)) return "a tile that ends with its expert is stored by the copy engine";
    if (!has_expert_runs(c)) return "more runs of rows than shared memory has room for";
    return "";
}

/// Why a config cannot serve a problem, whatever its shared memory holds; empty where it may.
inline std::string_view refusal(const Problem& p, const GemmConfig& c, int64_t tiles) {
    if (c.cluster.size() > p.num_sms) return "the cluster is larger than the SMs allowed";
    if (c.tile_m() % p.block_m_multiple != 0 || c.tile_n() % p.block_n_multiple != 0)
        return "set_block_size_multiple_of asks for other tiles";
    if (const std::string_view reason = group_refusal(p, c); !reason.empty()) return reason;
    if (sm90::spills(c)) return "it would spill registers";
    const int32_t rows = c.swap_ab ? p.n : p.m, cols = c.swap_ab ? p.m : p.n;
    if (c.cluster.rows > 1 && ceil_div(rows, c.tile.rows) % c.cluster.rows != 0)
        return "row blocks do not divide into clusters";
    if (c.cluster.cols > 1 && ceil_div(cols, c.tile.cols) % c.cluster.cols != 0)
        return "column blocks do not divide into clusters";
    if (c.cluster.rows > 1 && c.tile.cols / c.cluster.rows % 8 != 0)
        return "columns do not divide into multicast slices";
    if ((c.mn_major_rows() && c.tile.rows / c.cluster.cols % kMnBlock != 0) ||
        (c.mn_major_cols() && c.tile.cols / c.cluster.rows % kMnBlock != 0))
        return "an MN-major operand is copied in blocks of 64";
    if ((c.k_parts() > 1 || c.shares_last) && p.batch_invariant)
        return "a split K depends on M, and set_batch_invariant forbids that";
    if (sm90::only_tiles_with_products(p) && !c.wgmma_products)
        return "the tensor cores multiply scales, and set_batch_invariant asks for equal bits from all tiles";
    if (c.k_parts() > 1 && c.warpgroup_rows() > kWgmmaRows) return "a split K wants one accumulator a warpgroup";
    if (c.k_parts() > 1 && tiles * c.cluster.size() > sm90::resident_ctas(p.num_sms, c.cluster.size()))
        return "a split K wants all tiles at once";
    if (c.shares_last && shared_tiles(c, tiles, sm90::resident_ctas(p.num_sms, c.cluster.size())) == 0)
        return "no last tiles that pairs could share";
    const int32_t parts = c.cluster.k * c.k_warpgroups;
    if (parts > 1 && ceil_div(p.k, c.tile.k) < 3 * parts) return "less than three K blocks for each part of K";
    if (c.math_warpgroups > 3) return "more than three math warpgroups";
    return "";
}

/// Why its shared memory does not do.
inline std::string_view smem_refusal(const GemmConfig& c) {
    if (c.stages < 2) return "fewer than two stages fit shared memory";
    if (c.k_warpgroups > 1 && c.stages < 3 * c.k_warpgroups) return "fewer than three stages for each turn fit";
    return "";
}

/// Why a config that could serve a problem is not worth a thought, if there are others; empty where it is.
inline std::string_view waste(const Problem& p, const GemmConfig& c) {
    const int32_t m = expected_group_rows(p), rows = c.swap_ab ? p.n : m, cols = c.swap_ab ? m : p.n;
    if (c.tile.rows >= 2 * align_up(rows, kWgmmaRows)) return "rows twice what the problem has";
    if (c.tile.cols >= 2 * align_up(cols, c.mn_major_cols() ? kMnBlock : 16))
        return "columns twice what the problem has";
    if (c.store == StoreKind::tma_add && !c.swap_ab && c.tile.cols * sizeof(float) % kSwizzleBytes != 0)
        return "every second tile would begin within a line of the D that it is added to";
    return "";
}

/// Blocks of M walked together. A wave of tiles reads fewest bytes when it covers a square of the output. Higher, where
/// B is the larger operand and the L2 keeps their rows of A beside what passes through it: B is then read fewer times.
/// (If not all of A, then only where additions to D leave the memory little time.) Lower, where the L2 keeps a smaller
/// B: A is then read once, whatever the height. No higher than a group may be: a strip of full height is found without
/// a division. Measured: docs/performance.md.
inline int32_t choose_strip(const Problem& p, const GemmConfig& c, int32_t num_ctas) {
    const double block_m = c.super_tile_m();
    const double rows = p.grouping == Grouping::m_contiguous && !has_expert_runs(c) ? p.m : expected_group_rows(p);
    const double most = p.grouping == Grouping::masked ? std::min<double>(p.m, rows * (1 + kGroupScatter)) : rows;
    const double square = std::sqrt(static_cast<double>(num_ctas) * c.tile.rows * c.tile.cols) / block_m;
    const double row_bytes = static_cast<double>(expected_k(p)) * element_bytes(p.operand);
    const double kept = sm90::kKeptBytes / (block_m * row_bytes);
    double blocks = square;
    if (p.n >= rows && (kept * block_m >= rows || adds_to_memory(c.store)))
        blocks = std::max(square, kept);
    else if (p.n < rows && p.n * row_bytes <= sm90::kKeptBytesOfB)
        blocks = square * std::max(0.5, p.n / rows);
    return static_cast<int32_t>(std::clamp(blocks + 0.5, 1.0, std::ceil(most / block_m)));
}

/// Whether B should pass through the L2 and leave room for the rest. It pays where B is most of what is moved and all
/// blocks of M that share a part of it are walked together, so that memory is read once whatever the L2 keeps; and not
/// where it is many times what the L2 holds (measured: docs/performance.md).
inline bool streams_b(const Problem& p, const GemmConfig& c, int32_t strip_blocks) {
    if (p.grouping == Grouping::k_contiguous) return false;
    if (int64_t{strip_blocks} * c.super_tile_m() < expected_group_rows(p)) return false;
    const double size = element_bytes(p.operand), weights = expected_weights(p) * p.n * p.k * size;
    const double others = expected_rows(p) * (p.k * size + p.n * static_cast<double>(element_bytes(p.output)));
    const bool straight_groups = is_m_grouped(p.grouping) && !c.swap_ab;
    return weights <= sm90::streamed_bytes(c) && weights >= (straight_groups ? 4 : 2.5) * others;
}

/// Groups whose tensor maps fit a kernel's argument of 32,764 bytes.
inline constexpr int32_t kMostGroupMaps = 96;

/// Room in the table of groups: few different ones, so that a model has few kernels. A run of rows takes at least the
/// experts' alignment. None where the layout itself tells a tile's expert.
inline int32_t group_capacity(const Problem& p, const GemmConfig& c) {
    if (p.group_maps) return p.num_groups <= 8 ? 8 : p.num_groups <= 32 ? 32 : kMostGroupMaps;
    if (p.grouping == Grouping::m_contiguous) {
        if (c.tile_m() % kWgmmaRows != 0 || p.m_alignment % kWgmmaRows != 0) return 0;
        const int32_t runs = align_up(ceil_div(p.m, p.m_alignment), 256);
        return runs <= kMostRuns ? runs : 0;
    }
    return has_group_table(c) || p.grouping == Grouping::k_contiguous
               ? std::max(32, static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(p.num_groups))))
               : 0;
}

/// Fewer buffers for D, by halves, until the ring has so many stages; if need be, a single one.
inline void trade_buffers(GemmConfig& c, int32_t stages) {
    while (c.stages < stages && c.store_buffers > 1 && is_staged(c.store)) {
        c.store_buffers = ceil_div(c.store_buffers, 2);
        c.stages = most_stages(c);
    }
}

/// Divides shared memory between buffers for D and the ring of stages. Buffers for all of a tile: its stores drain
/// while the next one is multiplied. Where that leaves few stages, fewer buffers, of which the later ones then wait,
/// rather than a ring that runs dry; and where one stage more is worth it, if fewer buffers make room for it.
inline void divide_smem(GemmConfig& c, double tiles_per_cta, int32_t group_rows) {
    c.store_buffers = store_chunks_per_tile(c);
    c.stages = most_stages(c);
    trade_buffers(c, sm90::least_stages(c, tiles_per_cta, group_rows));
    if (sm90::reuses_ring(c)) {
        GemmConfig shared = c;
        shared.parts_in_ring = true;
        shared.store_buffers = store_chunks_per_tile(c);
        shared.stages = most_stages(shared);
        if (shared.stages > c.stages && parts_fit_ring(shared)) c = shared;
    }
    if (!sm90::wants_stage(c, tiles_per_cta)) return;
    GemmConfig deeper = c;
    trade_buffers(deeper, c.stages + 1);
    if (deeper.stages > c.stages) c = deeper;
}

inline Candidate make_candidate(const Problem& p, const Tiling& tiling, bool tolerate_waste = false) {
    const ClusterShape& cluster = tiling.cluster;
    const TileShape tile{tiling.tile_rows, tiling.tile_cols, block_k(p.operand)};
    Candidate candidate;
    GemmConfig& c = candidate.config;
    // FP32 of M groups is written row by row, so that a masked D keeps what is behind its groups' rows.
    const bool staged = p.aligned_store && (p.output == ElementType::bf16 || !is_m_grouped(p.grouping));
    const bool reduces = adds_in_place(p);
    c = {.arch = Arch::sm90,
         .grouping = p.grouping,
         .operand = p.operand,
         .output = p.output,
         .scales_a = p.scales_a,
         .scales_b = p.scales_b,
         .mn_major_a = p.mn_major_a != 0,
         .mn_major_b = p.mn_major_b != 0,
         .swap_ab = tiling.swap_ab,
         .tile = tile,
         .cluster = cluster,
         .math_warpgroups = sm90::row_warpgroups(tile) * tiling.turns,
         .k_warpgroups = tiling.turns,
         .stages = 0,
         .add_c = p.add_c != 0 && !reduces,
         .store = staged ? (reduces ? StoreKind::tma_add : StoreKind::tma)
                         : (reduces ? StoreKind::direct_add : StoreKind::direct),
         .tensor_core_percent = p.tensor_core_percent,
         .group_maps = p.group_maps != 0,
         .shape = p.compiled};
    c.group_capacity = group_capacity(p, c);
    const int64_t m_blocks = (most_blocks(p, c.tile_m()) + c.cluster_m() - 1) / c.cluster_m() * c.cluster_m();
    const int64_t tiles = m_blocks * align_up(ceil_div(p.n, c.tile_n()), c.cluster_n());
    const int32_t resident = sm90::resident_ctas(p.num_sms, cluster.size());
    c.shares_last = c.grouping == Grouping::dense && cluster.k == 2 && tiling.turns == 1 &&
                    (tiles * cluster.k > resident || sm90::shares_only(tile));
    c.wgmma_products = sm90::multiplies_scales(p, c);
    c.look_ahead = sm90::looks_ahead(c);
    c.skips_padding = sm90::skips_padding(c, expected_group_rows(p));
    candidate.refusal = refusal(p, c, tiles);
    if (!candidate.refusal.empty()) return candidate;
    divide_smem(c, static_cast<double>(tiles * c.k_ctas()) / resident, expected_group_rows(p));
    candidate.refusal = smem_refusal(c);
    if (candidate.refusal.empty() && !tolerate_waste) candidate.refusal = waste(p, c);
    if (!candidate.refusal.empty()) return candidate;
    candidate.num_ctas = static_cast<int32_t>(std::min<int64_t>(tiles * cluster.k, resident));
    candidate.strip_blocks = choose_strip(p, c, candidate.num_ctas);
    // Multicast pairs with one tile each had better walk as they come (docs/performance.md).
    candidate.by_gpc = has_places(c) && (cluster.k > 1 || tiles > candidate.num_ctas);
    c.stream_b = streams_b(p, c, candidate.strip_blocks);
    Problem average = p;
    average.k = expected_k(p);
    candidate.cost_us = sm90::CostModel{sm90::CostConstants::of(p.operand)}.estimate_us(average, c, candidate.num_ctas);
    return candidate;
}

/// Wasteful ones are refused unless settings leave no others.
inline std::vector<Candidate> enumerate(const Problem& p, bool tolerate_waste = false) {
    std::vector<Candidate> candidates;
    candidates.reserve(1024);
    for (const bool swap_ab : {false, true})
        for (const TileShape& tile : is_m_grouped(p.grouping) ? sm90::grouped_tile_shapes(p.operand, swap_ab)
                                                              : sm90::tile_shapes(p.operand, swap_ab))
            for (const ClusterShape& cluster : sm90::cluster_shapes())
                for (const int32_t turns : {1, 2, 3})
                    if (turns == 1 || (p.grouping == Grouping::dense && sm90::takes_turns(tile, cluster, turns)))
                        candidates.push_back(make_candidate(p, {swap_ab, tile.rows, tile.cols, cluster, turns},
                                                            tolerate_waste));
    const auto serves = [](const Candidate& candidate) { return candidate.refusal.empty(); };
    return tolerate_waste || std::ranges::any_of(candidates, serves) ? candidates : enumerate(p, true);
}

/// The cheapest legal candidate. Every legal problem has one, as some tile without a cluster fits everything, unless
/// set_block_size_multiple_of leaves none.
inline Candidate select(const Problem& problem) {
    const std::vector<Candidate> candidates = enumerate(problem);
    const Candidate* best = nullptr;
    for (const Candidate& candidate : candidates)
        if (candidate.refusal.empty() && (best == nullptr || candidate.cost_us < best->cost_us)) best = &candidate;
    require(best != nullptr || (problem.block_m_multiple == 1 && problem.block_n_multiple == 1),
            "no tile has a height that is a multiple of ", problem.block_m_multiple,
            " and a width that is a multiple of ", problem.block_n_multiple,
            is_m_grouped(problem.grouping) ? concat(" and serves experts aligned to ", problem.m_alignment, " rows")
                                           : "",
            ": see set_block_size_multiple_of");
    require_runtime(best != nullptr, "no kernel config serves M=", problem.m, " N=", problem.n, " K=", problem.k,
                    " (a bug: please report it)");
    return *best;
}

}  // namespace deep_gemm
