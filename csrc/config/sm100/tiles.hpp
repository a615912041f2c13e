// SM100: the tiles that exist.
#pragma once

#include <deep_gemm/arch/sm100.cuh>

#include <algorithm>
#include <vector>

#include "clusters.hpp"

namespace deep_gemm::sm100 {

/// Widths of tiles: the instruction has all multiples of 16, of pairs 32. Fewer for groups, so that a weight shape has
/// few kernels.
inline std::vector<int32_t> widths(bool grouped) {
    if (grouped) return {16, 32, 64, 96, 128, 160, 192, 224, 256};
    std::vector<int32_t> all = {16, 48, 80, 112};
    for (int32_t cols = 32; cols <= 256; cols += 32) all.push_back(cols);
    return all;
}

/// Packed weights are rows, beside no more columns than sums leave registers for: from 64 on those that two warpgroups
/// divide.
inline bool serves_packed(const Tiling& tiling) {
    const int32_t cols = tiling.tile_cols;
    return tiling.swap_ab && cols <= 128 && (cols < 64 || cols % 32 == 0);
}

inline std::vector<Tiling> tilings(const Problem& p) {
    std::vector<Tiling> found;
    for (const bool swap_ab : {false, true})
        for (const int32_t cols : widths(is_m_grouped(p.grouping)))
            for (const ClusterShape& cluster : cluster_shapes())
                if (cols % (cluster.rows * 16) == 0) found.push_back({swap_ab, kRows, cols, cluster, 1});
    if (p.b.packed()) std::erase_if(found, [](const Tiling& tiling) { return !serves_packed(tiling); });
    return found;
}

inline bool has_tiling(const Problem& p, const Tiling& tiling) {
    if (p.b.packed() && !serves_packed(tiling)) return false;
    const auto has = [&](bool grouped) {
        const std::vector<int32_t> all = widths(grouped);
        return std::ranges::find(all, tiling.tile_cols) != all.end();
    };
    return tiling.tile_rows == kRows && tiling.k_warpgroups == 1 && tiling.preconvert == Preconvert::none &&
           (has(false) || has(true));
}

}  // namespace deep_gemm::sm100
