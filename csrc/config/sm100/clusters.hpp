// SM100: clusters that are worth considering, and how many run at once.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "../candidate.hpp"

namespace deep_gemm::sm100 {

/// Single CTAs, pairs, and CTAs that split K.
inline std::vector<ClusterShape> cluster_shapes() {
    return {{.rows = 1}, {.rows = 2}, {.k = 2}, {.k = 3}, {.k = 4}, {.k = 5}, {.k = 6}, {.k = 7}, {.k = 8}};
}

/// SMs of the four GPCs of a die, of which a B200 has two, each with 74 of 80 SMs: what is missing may be anywhere.
/// Nobody says where; cuOccupancyMaxActiveClusters would, on a machine.
inline constexpr std::array<std::array<int32_t, 4>, 2> kDies = {{{20, 18, 18, 18}, {20, 20, 18, 16}}};

/// Clusters of this size that run at once, one CTA an SM, each within a GPC.
inline int32_t resident_clusters(int32_t num_sms, int32_t size) {
    int32_t least = num_sms / size;
    if (size > 2)
        for (const std::array<int32_t, 4>& die : kDies) {
            int32_t clusters = 0;
            for (const int32_t sms : die) clusters += 2 * (sms / size);
            least = std::min(least, clusters);
        }
    return std::min(least, kMaxClusters);
}

}  // namespace deep_gemm::sm100
