// SM100: why a config cannot serve a problem.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>

#include <algorithm>
#include <string_view>

#include "../problem.hpp"
#include "../quantised.hpp"
#include "clusters.hpp"

namespace deep_gemm::sm100 {

/// CTAs, one an SM, that run at once.
inline int32_t resident_ctas(const Problem& p, const GemmConfig& c) {
    if (c.cluster.size() == 1) return p.num_sms;
    return resident_clusters(p.num_sms, c.cluster.size()) * c.cluster.size();
}

/// Why groups cannot be served by a config; empty where they can.
inline std::string_view group_rejection(const Problem& p, const GemmConfig& c) {
    if (!is_m_grouped(p.grouping)) return "";
    if (c.cluster_m() > 1) return "neighbours along M may belong to different experts";
    if (p.grouping == Grouping::masked) return "";
    // Behind an expert's last rows a tile may hold another's.
    return p.m_alignment % c.tile_m() == 0 ? "" : "the tile's height does not divide the experts' alignment";
}

/// Why a config cannot serve a problem, whatever its memory holds; empty where it may.
inline std::string_view rejection(const Problem& p, const GemmConfig& c, int64_t tiles) {
    if (c.cluster.size() > p.num_sms) return "the cluster is larger than the SMs allowed";
    if (c.cluster.k > 1) {
        if (!has_fixed_extents(p.grouping)) return "groups do not split K";
        if (p.batch_invariant) return "a split K depends on M, and set_batch_invariant forbids that";
        if (tiles * c.cluster.k > resident_ctas(p, c)) return "a split K wants all tiles at once";
    }
    if (c.tile_m() % p.block_m_multiple != 0 || c.tile_n() % p.block_n_multiple != 0)
        return "set_block_size_multiple_of asks for other tiles";
    if (c.cluster.rows > 1 && (c.swap_ab ? p.n : p.m) <= c.tile.rows && run_ctas(c) == 1)
        return "the pair's other CTA has no rows";
    const RunReach pair = {.ctas = c.swap_ab ? c.cluster.rows : 1};
    if (const std::string_view reason = quantise_rejection(c, piece_d_cols(c), c.cluster.k > 1, pair); !reason.empty())
        return reason;
    if (!c.swap_ab && !c.gate.any() && exchanges_runs(c, piece_d_cols(c)))
        return "columns that share a scale of D are one thread's";
    return group_rejection(p, c);
}

inline std::string_view smem_rejection(const GemmConfig& c) {
    if (has_several_words(c) && plan_tensor_memory(c).sets == 0)
        return "sums leave no room for words of scales in tensor memory";
    return c.stages < 2 ? "fewer than two stages fit shared and tensor memory" : "";
}

/// What a legal config would waste; empty where it may be the best.
inline std::string_view waste(const Problem& p, const GemmConfig& c) {
    const int32_t cols = c.swap_ab ? expected_group_rows(p) : p.n;
    if (c.tile.cols >= 64 && c.tile.cols >= 2 * align_up(cols, 32)) return "half of the columns would be empty";
    return "";
}

}  // namespace deep_gemm::sm100
