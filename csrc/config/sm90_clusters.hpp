// Hopper: clusters of CTAs that are worth considering, how many run at once, and on which SMs they find themselves.
#pragma once

#include <deep_gemm/config.cuh>
#include <deep_gemm/params.cuh>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

namespace deep_gemm::sm90 {

/// Multicast pairs, and splits of K. Squares of four lose more to the CTAs that then fit than they save in L2 reads.
inline std::vector<ClusterShape> cluster_shapes() {
    return {{.rows = 1}, {.rows = 2}, {.cols = 2}, {.k = 2}, {.k = 3}, {.k = 4}, {.k = 8}};
}

/// CTAs, one an SM, that run at once in clusters of this size. A cluster needs its SMs in one GPC;
/// cuOccupancyMaxActiveClusters says 66, 39, 30 and 15 clusters of 2, 3, 4 and 8 on an H200 with 132 SMs.
inline int32_t resident_ctas(int32_t num_sms, int32_t cluster) {
    if (cluster == 2) return std::min(num_sms / 2, kMostPairs) * 2;
    if (cluster == 1) return num_sms;
    if (cluster == 3) return num_sms * 13 / 44 * cluster;
    return num_sms * 10 / 11 / cluster * cluster;
}

/// Pairs of CTAs (clusters of two) that the GPCs of an H200 with 132 SMs have room for.
inline constexpr int32_t kPairsOfGpc[] = {8, 8, 8, 8, 8, 8, 9, 9}, kPairs = 66;

/// Where each of these pairs had better begin to walk the tiles, so that pairs of one GPC are neighbours: the L2
/// answers a GPC's requests for the same data at once. CTAs without a cluster fill GPCs one after the other anyway.
/// Pairs were seen to be dealt out: four to the first GPC, then one to each that has room
/// (benchmarks/results/tried/pair_places.json).
constexpr std::array<uint8_t, kPairs> places_by_gpc() {
    constexpr int32_t kGpcs = std::size(kPairsOfGpc), kDealtFirst = 4;
    std::array<uint8_t, kPairs> places{};
    int32_t dealt[kGpcs] = {}, pair = 0;
    const auto deal = [&](int32_t gpc) {
        int32_t before = 0;
        for (int32_t other = 0; other < gpc; ++other) before += kPairsOfGpc[other];
        places[pair++] = static_cast<uint8_t>(before + dealt[gpc]++);
    };
    while (pair < kDealtFirst) deal(0);
    while (pair < kPairs)
        for (int32_t gpc = 0; gpc < kGpcs; ++gpc)
            if (dealt[gpc] < kPairsOfGpc[gpc]) deal(gpc);
    return places;
}

/// As they come where there are other SMs, or one tile a CTA. Only speed depends on it.
inline int32_t pair_place(int32_t pair, int32_t ctas, bool several_tiles) {
    static constexpr std::array<uint8_t, kPairs> kPlaces = places_by_gpc();
    return ctas == 2 * kPairs && several_tiles ? kPlaces[pair] : pair;
}

}  // namespace deep_gemm::sm90
