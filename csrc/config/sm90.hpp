// Hopper: the tile shapes that exist, and what one costs. Facts only; `select.hpp` decides.
#pragma once

#include <deep_gemm/plan.cuh>

#include <algorithm>
#include <cmath>
#include <vector>

#include "problem.hpp"

namespace deep_gemm::sm90 {

/// Tiles worth considering, whatever the problem. Accumulators bound them: a thread holds cols / 2 floats for each 64 rows, and
/// another cols / 2 for the K block under way.
inline std::vector<TileShape> tile_shapes(bool swap_ab) {
    std::vector<TileShape> shapes;
    if (swap_ab) {  // cols are tokens
        for (const int32_t rows : {64, 128})
            for (int32_t cols = 8; cols <= 128; cols += cols < 64 ? 8 : 16) shapes.push_back({rows, cols, 128});
    } else {
        for (int32_t cols = 16; cols <= 192; cols += 16) shapes.push_back({128, cols, 128});
        for (int32_t cols = 64; cols <= 128; cols += 16) shapes.push_back({256, cols, 128});
    }
    return shapes;
}

inline int32_t math_warpgroups(const TileShape& tile) { return tile.rows == 64 ? 1 : 2; }

/// Multicast pairs and squares, and splits of K.
inline std::vector<ClusterShape> cluster_shapes() {
    return {{.rows = 1}, {.rows = 2}, {.cols = 2}, {.rows = 2, .cols = 2}, {.k = 2}, {.k = 3}, {.k = 4}, {.k = 5}, {.k = 6}, {.k = 8}};
}

/// CTAs, one an SM, that run at once in clusters of this size: a cluster needs its SMs in one GPC, and GPCs have 16 or 18.
inline int32_t resident_ctas(int32_t num_sms, int32_t cluster) {
    const int32_t lost = cluster > 2 ? num_sms / 33 : 0;
    return (num_sms - lost) / cluster * cluster;
}

/// Estimated time of a config in microseconds. The constants are fitted to measured times on one H200 (docs/performance.md).
struct CostModel {
    double clock_mhz = 1700;
    double memory_gb_per_s = 4300;
    double launch_us = 2.5;
    double l2_bytes_per_cycle = 40;     // into one SM, all of them reading
    double block_overhead_cycles = 120; // wait, scale loads and issue of one K block, not hidden within a warpgroup
    double tile_overhead_cycles = 1500; // store of D, first copies of the next tile

    double estimate_us(const Problem& p, const GemmConfig& c, int32_t num_ctas) const {
        const int32_t rows = c.swap_ab ? p.n : p.m, cols = c.swap_ab ? p.m : p.n;
        const int32_t row_blocks = ceil_div(ceil_div(rows, c.tile.rows), c.cluster.rows);
        const int32_t col_blocks = ceil_div(ceil_div(cols, c.tile.cols), c.cluster.cols);
        const double tiles = static_cast<double>(row_blocks) * col_blocks;
        const double clusters = num_ctas / c.cluster.size();
        const double waves = std::ceil(tiles / clusters);
        const double k_blocks = std::ceil(static_cast<double>(ceil_div(p.k, c.tile.k)) / c.cluster.k);

        const double multiply = c.tile.rows / 64.0 * c.tile.cols * 2;
        const double promote = c.tile.cols / 2.0 * 1.1 + 20;
        const double chain = c.warpgroup_rows() / 64.0 * (2.0 * c.tile.cols + promote + block_overhead_cycles);
        const double bytes = (static_cast<double>(c.tile.rows) / c.cluster.cols + static_cast<double>(c.tile.cols) / c.cluster.rows) * 128;
        const double block = std::max({multiply, chain, bytes / l2_bytes_per_cycle});
        const double tile = k_blocks * block + tile_overhead_cycles;
        const double compute_us = waves * tile / clock_mhz;
        const double moved = static_cast<double>(p.n) * p.k + static_cast<double>(p.m) * p.k +
                             static_cast<double>(p.m) * p.n * element_bytes(p.output);
        return launch_us + std::max(compute_us, moved / memory_gb_per_s / 1e3 + 1.5);
    }
};

}  // namespace deep_gemm::sm90
