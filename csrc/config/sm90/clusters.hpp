// Hopper: clusters of CTAs that are worth considering, how many run at once, and on which SMs they find themselves.
#pragma once

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "../candidate.hpp"

namespace deep_gemm::sm90 {

/// Multicast pairs, and splits of K. Squares of four lose more to the CTAs that then fit than they save in L2 reads.
inline std::vector<ClusterShape> cluster_shapes() {
    return {{.rows = 1}, {.rows = 2}, {.cols = 2}, {.k = 2}, {.k = 4}, {.k = 8}};
}

/// CTAs, one an SM, that run at once in clusters of this size. A cluster needs its SMs in one GPC;
/// cuOccupancyMaxActiveClusters says 66, 30 and 15 clusters of 2, 4 and 8 on an H200 with 132 SMs.
inline int32_t resident_ctas(int32_t num_sms, int32_t cluster) {
    if (cluster == 2) return std::min(num_sms / 2, kMaxClusters) * 2;
    if (cluster == 1) return num_sms;
    return num_sms * 10 / 11 / cluster * cluster;
}

/// SMs of each GPC of an H200 that clusters can have, in the order of dealing. Pairs find eight more, of the small GPC
/// as far as sharing goes. At which GPC dealing begins differs from launch to launch: with the small one in the middle
/// most places are right wherever that is.
inline constexpr int32_t kSms = 132, kSmsOfGpc[] = {16, 16, 18, 18, 8, 16, 16, 16}, kSmallGpc = 4, kSmsForPairs = 8;

/// Where each cluster had better begin to walk the tiles, so that clusters of one GPC are neighbours: the L2 answers a
/// GPC's requests for the same data at once. CTAs without a cluster fill GPCs one after the other anyway. Clusters were
/// seen to be dealt out, one to each GPC that has room, pairs first to the SMs that only pairs find
/// (tests/data/cta_order.json). On another chip as they come. Only speed depends on it.
inline CtaOrder cta_order_by_gpc(int32_t num_sms, int32_t clusters, int32_t size) {
    CtaOrder gpc_of{}, places{};
    if (num_sms != kSms || clusters * size > resident_ctas(num_sms, size)) clusters = 0;
    int32_t dealt = size == 2 ? std::min(kSmsForPairs / size, clusters) : 0;
    std::fill_n(gpc_of.begin(), dealt, uint8_t{kSmallGpc});
    for (int32_t round = 1; dealt < clusters; ++round)
        for (size_t gpc = 0; gpc < std::size(kSmsOfGpc) && dealt < clusters; ++gpc)
            if (round <= kSmsOfGpc[gpc] / size) gpc_of[dealt++] = static_cast<uint8_t>(gpc);
    CtaOrder walk{};
    std::iota(walk.begin(), walk.end(), uint8_t{0});
    std::stable_sort(walk.begin(), walk.begin() + clusters, [&](int x, int y) { return gpc_of[x] < gpc_of[y]; });
    for (size_t place = 0; place < walk.size(); ++place) places[walk[place]] = static_cast<uint8_t>(place);
    return places;
}

}  // namespace deep_gemm::sm90
