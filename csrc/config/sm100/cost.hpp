// SM100: what a config costs, by published figures of a B200; no measurement of ours stands behind it. Whoever has the
// hardware replaces the constants.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>

#include <algorithm>
#include <cmath>

#include "../problem.hpp"

namespace deep_gemm::sm100 {

struct CostConstants {
    double clock_mhz = 1850;
    double launch_us = 3;              // launch, prologue, first copies
    double memory_gb_per_s = 7100;     // of 8,000 by the data sheet
    double l2_bytes_per_cycle = 64;    // into one SM, where all copy
    double tile_cycles = 1200;         // the way out of the last tile, and of every one with a single accumulator
    double fetch_cycles = 1400;        // from the request of a stage to its arrival
    double store_cycles = 20;          // of a warp, for each column of a tile
    double swapped_store_cycles = 34;  // the same where rows are N, and neighbours of D are in different threads
    double split_us = 1.5;             // CTAs that split K meet,
    double split_cycles = 24;          // and a warp sends and adds up so much longer, for each column of a tile
    double tail_share = 0.15;          // of the memory's time, that hides behind nothing
};

struct CostModel : CostConstants {
    /// Cycles that one K block takes in a CTA.
    double block_cycles(const GemmConfig& c) const {
        const double tensor = tensor_cycles(c);
        const Element rows = c.rows_operand().element, cols = c.cols_operand().element;
        const double l2 = (c.tile.rows * copied_row_bytes(rows, cols) + own_cols(c) * copied_row_bytes(cols, rows)) /
                          l2_bytes_per_cycle;
        const double late = fetch_cycles / std::max(c.stages - 1, 1);
        return std::max({tensor, l2, late});
    }

    double estimate_us(const Problem& p, const GemmConfig& c, int32_t num_ctas) const {
        const ExpectedBlocks blocks = expected_blocks(p, c.super_tile_m());
        const double tiles = blocks.mean * ceil_div(p.n, c.super_tile_n());
        const double waves = expected_waves(tiles / (num_ctas / c.tile_ctas()), blocks.scatter);
        const double k_blocks = std::ceil(static_cast<double>(ceil_div(p.k, c.tile.k)) / c.cluster.k);
        const double split = c.cluster.k > 1 ? split_us + split_cycles * c.tile.cols / clock_mhz : 0;
        const double store = c.tile.cols * (c.swap_ab ? swapped_store_cycles : store_cycles);
        const double multiply = k_blocks * block_cycles(c);
        const double tile = c.sm100.accumulators > 1 ? std::max(multiply, store) : multiply + store;
        const double compute_us = (waves * tile + store + tile_cycles) / clock_mhz;

        const double rows = expected_rows(p), n = p.n, k = p.k;
        const double moved = expected_weights(p) * n * bytes_of(p.b.element, k) + rows * bytes_of(p.a.element, k) +
                             rows * bytes_of(p.output, n) * (p.add_c ? 2 : 1);
        const double memory_us = moved / memory_gb_per_s / 1e3;
        return launch_us + split + std::max(compute_us, memory_us) + tail_share * std::min(compute_us, memory_us);
    }
};

}  // namespace deep_gemm::sm100
