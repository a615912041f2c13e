// From a problem to a config: enumerate, reject with a reason, rank by estimated cost. Pure: no device, no environment, no state.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../util/require.hpp"
#include "problem.hpp"
#include "sm90.hpp"

namespace deep_gemm {

/// A config with what its launch needs and what selection thinks of it.
struct Candidate {
    GemmConfig config = {};
    int32_t num_ctas = 0;
    int32_t strip_blocks = 1;
    double cost_us = 0;
    std::string refusal = {};  // why not; empty for a legal candidate
};

/// As many stages as shared memory holds; more than 16 buy nothing.
inline int32_t most_stages(GemmConfig config) {
    for (config.stages = 16; config.stages > 0; --config.stages)
        if (plan_smem(config).bytes <= kMaxSmemBytes) break;
    return config.stages;
}

/// Why a config cannot or should not serve a problem; empty where it can.
inline std::string refusal(const Problem& p, const GemmConfig& c, int64_t tiles) {
    if (c.stages < 2) return "fewer than two stages fit shared memory";
    if (c.cluster.size() > p.num_sms) return "the cluster is larger than the SMs allowed";
    const int32_t rows = c.swap_ab ? p.n : p.m, cols = c.swap_ab ? p.m : p.n;
    if (c.tile.rows > 64 && c.tile.rows >= 2 * align_up(rows, 64)) return "rows twice what the problem has";
    if (c.tile.cols > 16 && c.tile.cols >= 2 * align_up(cols, 16)) return "columns twice what the problem has";
    if (c.cluster.rows > 1 && ceil_div(rows, c.tile.rows) % c.cluster.rows != 0) return "row blocks do not divide into clusters";
    if (c.cluster.cols > 1 && ceil_div(cols, c.tile.cols) % c.cluster.cols != 0) return "column blocks do not divide into clusters";
    if (c.cluster.rows > 1 && c.tile.cols / c.cluster.rows % 8 != 0) return "columns do not divide into multicast slices";
    if (c.cluster.k > 1 && c.warpgroup_rows() > kWgmmaRows) return "a split K wants one accumulator a warpgroup";
    if (c.cluster.k > 1 && tiles * c.cluster.size() > sm90::resident_ctas(p.num_sms, c.cluster.size())) return "a split K wants all tiles at once";
    if (c.cluster.k > 1 && ceil_div(p.k, c.tile.k) < 3 * c.cluster.k) return "less than three K blocks for each part of K";
    return "";
}

/// Blocks of M walked together. A wave of tiles reads fewest bytes when it covers a square of the output.
inline int32_t choose_strip(const GemmConfig& c, int32_t num_ctas) {
    const double square = std::sqrt(static_cast<double>(num_ctas) * c.tile.rows * c.tile.cols);
    const int32_t block_m = c.swap_ab ? c.tile.cols * c.cluster.cols : c.tile.rows * c.cluster.rows;
    return std::max(1, static_cast<int32_t>(square / block_m + 0.5));
}

inline Candidate make_candidate(const Problem& p, bool swap_ab, const TileShape& tile, const ClusterShape& cluster) {
    Candidate candidate;
    GemmConfig& c = candidate.config;
    const bool reduces = p.add_c != 0 && p.in_place != 0 && p.output == ElementType::fp32;
    c = {.arch = Arch::sm90, .grouping = p.grouping, .operand = p.operand, .output = p.output,
         .scales_a = p.scales_a, .scales_b = p.scales_b, .swap_ab = swap_ab, .tile = tile, .cluster = cluster,
         .math_warpgroups = sm90::math_warpgroups(tile), .stages = 1, .add_c = p.add_c != 0 && !reduces,
         .store = reduces                                                ? StoreKind::reduce
                  : p.aligned_store && p.output == ElementType::bf16 ? StoreKind::tma
                                                                     : StoreKind::direct,
         .dependent_launch = p.dependent_launch != 0, .shape = p.compiled};
    c.store_buffers = store_chunks_per_tile(c);  // all of a tile: its stores drain while the next one is multiplied
    c.stages = most_stages(c);
    const int32_t rows = swap_ab ? p.n : p.m, cols = swap_ab ? p.m : p.n;
    const int64_t tiles = int64_t{1} * align_up(ceil_div(rows, tile.rows), cluster.rows) * align_up(ceil_div(cols, tile.cols), cluster.cols);
    candidate.refusal = refusal(p, c, tiles);
    if (!candidate.refusal.empty()) return candidate;
    candidate.num_ctas = static_cast<int32_t>(std::min<int64_t>(tiles * cluster.k, sm90::resident_ctas(p.num_sms, cluster.size())));
    candidate.strip_blocks = choose_strip(c, candidate.num_ctas);
    candidate.cost_us = sm90::CostModel{}.estimate_us(p, c, candidate.num_ctas);
    return candidate;
}

inline std::vector<Candidate> enumerate(const Problem& p) {
    std::vector<Candidate> candidates;
    for (const bool swap_ab : {false, true})
        for (const TileShape& tile : sm90::tile_shapes(swap_ab))
            for (const ClusterShape& cluster : sm90::cluster_shapes()) candidates.push_back(make_candidate(p, swap_ab, tile, cluster));
    return candidates;
}

/// The cheapest legal candidate. Every legal problem has one: the smallest tile without a cluster fits everything.
inline Candidate select(const Problem& problem) {
    const std::vector<Candidate> candidates = enumerate(problem);
    const Candidate* best = nullptr;
    for (const Candidate& candidate : candidates)
        if (candidate.refusal.empty() && (best == nullptr || candidate.cost_us < best->cost_us)) best = &candidate;
    require_runtime(best != nullptr, "no kernel config serves M=", problem.m, " N=", problem.n, " K=", problem.k,
                    " (a bug: please report it)");
    return *best;
}

}  // namespace deep_gemm
