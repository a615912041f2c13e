// SM80: what a config costs, by the data sheets of its GPUs; where the library runs these kernels on a Hopper, by what
// was measured there.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>

#include <algorithm>
#include <cmath>

#include "../problem.hpp"

namespace deep_gemm::sm80 {

/// Of one SM: multiplications of 16 bits a cycle, and what its share of memory brings it.
struct SmFacts {
    double products_per_cycle, memory_bytes_per_cycle, l2_bytes_per_cycle;
};

/// A100: 108 SMs at 1.41 GHz, 2 TB/s. The others have half of the tensor cores' rate and less memory.
constexpr SmFacts sm_facts(int32_t target) {
    if (target == 80) return {1024, 13, 40};
    return {512, 5, 30};
}

struct CostConstants {
    double clock_mhz = 1410;
    double launch_us = 3;
    double smem_bytes_per_cycle = 128;
    double first_cycles = 1200;     // until the first stage has come
    double store_cycles = 0.06;     // an element of a tile
    double sum_up_cycles = 400;     // warps that split K meet
    double issue_cycles = 60;       // of a K block: barrier, copies' addresses
    double promote_cycles = 0.018;  // an element and K block
    double convert_cycles = 0.02;   // an element that a warp converts
};

struct CostModel : CostConstants {
    /// Cycles that an SM takes for one K block of all its CTAs.
    double block_cycles(const GemmConfig& c) const {
        const double k = c.tile.k, rows = c.tile.rows, cols = c.tile.cols, ctas = c.sm80.ctas_per_sm;
        const double rate = facts.products_per_cycle * 16 / bits(c.sm80.multiplied_as);
        const double tensor = rows * cols * k / rate;
        const double row_bytes = rows * bytes_of(c.rows_operand().element, k),
                     col_bytes = cols * bytes_of(c.cols_operand().element, k);
        const double reads = rows * c.sm80.col_warps + cols * c.sm80.row_warps;
        const double smem =
            (row_bytes * (1 + c.sm80.col_warps) + col_bytes * (1 + c.sm80.row_warps)) / smem_bytes_per_cycle;
        const double l2 = (row_bytes + col_bytes) / facts.l2_bytes_per_cycle;
        const double others = issue_cycles + (c.scaled() ? promote_cycles * scale_groups(c) * rows * cols : 0) +
                              (c.b.packed() ? convert_cycles * rows * c.sm80.col_warps * k : 0) +
                              (converts(c) ? convert_cycles * reads * k : 0);
        return std::max({tensor + others / ctas, smem, l2}) * ctas;
    }

    double estimate_us(const Problem& p, const GemmConfig& c, int32_t num_ctas) const {
        const ExpectedBlocks blocks = expected_blocks(p, c.tile_m());
        const double tiles = blocks.mean * ceil_div(p.n, c.tile_n());
        const double waves = expected_waves(tiles / num_ctas, blocks.scatter);
        const double store = store_cycles * c.tile.rows * c.tile.cols + (c.sm80.k_warps > 1 ? sum_up_cycles : 0);
        const double compute_us =
            (waves * (ceil_div(p.k, c.tile.k) * block_cycles(c) + store * c.sm80.ctas_per_sm) + first_cycles) /
            clock_mhz;
        const double rows = expected_rows(p), n = p.n, k = p.k;
        const double moved = expected_weights(p) * n * bytes_of(p.b.element, k) + rows * bytes_of(p.a.element, k) +
                             rows * bytes_of(p.output, n) * (p.add_c ? 2 : 1);
        const double memory_us = moved / (facts.memory_bytes_per_cycle * p.num_sms * clock_mhz);
        return launch_us + std::max(compute_us, memory_us) + 0.1 * std::min(compute_us, memory_us);
    }

    SmFacts facts;
};

inline double cost_us(const Problem& p, const GemmConfig& c, int32_t num_ctas) {
    Problem average = p;
    average.k = expected_k(p);
    CostModel model;
    model.facts = sm_facts(p.target);
    return model.estimate_us(average, c, num_ctas);
}

}  // namespace deep_gemm::sm80
