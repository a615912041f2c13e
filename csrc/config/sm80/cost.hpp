// SM80: what a config costs. Constants were fitted to kernels compiled for sm_80 and run on an H100
// (docs/performance.md); what GPUs of the targets have is from their data sheets.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>

#include <algorithm>
#include <cmath>

#include "../candidate.hpp"

namespace deep_gemm::sm80 {

/// Of one SM: multiplications of 16 bits a cycle, and what its share of memory brings it.
struct SmFacts {
    double products_per_cycle, memory_bytes_per_cycle;
};

/// A100: 108 SMs at 1.41 GHz, 2 TB/s. The others have half of the tensor cores' rate and less memory.
constexpr SmFacts sm_facts(int32_t target) {
    if (target == 80) return {1024, 13};
    return {512, 5};
}

struct CostConstants {
    double clock_mhz = 1700;
    double launch_us = 5.3;
    double widen_us = 3;  // a kernel ahead, beside what its bytes take
    double l2_bytes_per_cycle = 59;
    double smem_bytes_per_cycle = 138;
    double first_cycles = 1750;           // until the first stage has come
    double store_cycles = 0.29;           // an element of a tile
    double sum_up_cycles = 350;           // warps that split K meet
    double issue_cycles = 240;            // of a K block: barrier, copies' addresses
    double promote_cycles = 0.05;         // an element, and group of scales
    double copy_share = 1.5;              // of the products' cycles, where warps that divide K of large tiles copy too
    double alone_cycles = 80;             // of a K block that is promoted, A not converted ahead, in an SM's only CTA
    double convert_cycles = 0.016;        // an element that a warp converts,
    double convert_scaled_cycles = 0.03;  // with scales multiplied in
    double bytes_under_way = 40 << 10;    // of an SM, that keep memory busy
    double tail_share = 0.1;              // of the shorter of the two times, that hides behind nothing
};

struct CostModel : CostConstants {
    /// CTAs that an SM has at once, of so many tiles.
    static double active_ctas(const Problem& p, const GemmConfig& c, double tiles) {
        return std::clamp(std::ceil(tiles / p.num_sms), 1.0, static_cast<double>(c.sm80.ctas_per_sm));
    }

    /// Cycles that an SM takes for one K block of each of these CTAs.
    double block_cycles(const GemmConfig& c, double ctas) const {
        const double k = c.tile.k, rows = c.tile.rows, cols = c.tile.cols;
        const double rate = facts.products_per_cycle * 16 / bits(c.sm80.multiplied_as);
        const double tensor = rows * cols * k / rate;
        const double row_bytes = bytes_of(c.rows_operand().element, k),
                     col_bytes = bytes_of(c.cols_operand().element, k);
        const double widened = (widens(c, c.rows_operand()) ? rows * c.col_warps : 0) +
                               (widens(c, c.cols_operand()) ? cols * c.sm80.row_warps : 0);
        const double loaded = rows * row_bytes + cols * col_bytes;
        const double read = rows * c.col_warps * row_bytes + cols * c.sm80.row_warps * col_bytes;
        const double packed_cycles = c.b.scaling.in_conversion() ? convert_scaled_cycles : convert_cycles;
        const double alone = c.scaled() && !reads_widened_a(c) && ctas < 2 ? alone_cycles : 0;
        const double registers =
            (c.scaled() ? promote_cycles * rows * cols * c.sm80.k_warps * scale_groups(c) / group_stages(c) : 0) +
            (c.b.packed() ? packed_cycles * rows * c.col_warps * k : 0) + convert_cycles * widened * k;
        const bool copies = c.sm80.k_warps > 2 && !has_copy_warp(c) && rows * cols >= 64 * 32;
        return std::max({std::max(tensor, registers) * (copies ? copy_share : 1) + issue_cycles / ctas + alone,
                         (loaded + read) / smem_bytes_per_cycle, loaded / l2_bytes_per_cycle}) *
               ctas;
    }

    /// Memory is as busy as what is under way keeps it, and where few tiles leave SMs out, as these do.
    double memory_us(const Problem& p, const GemmConfig& c, double ctas, double tiles) const {
        const double rows = expected_rows(p), n = p.n, k = p.k;
        const double moved = expected_weights(p) * n * bytes_of(p.b.element, k) + rows * bytes_of(c.a.element, k) +
                             rows * bytes_of(p.output, n) * (p.add_c ? 2 : 1);
        const double weights =
            c.swap_ab ? c.tile.rows * row_bytes(c, c.rows_operand()) : c.tile.cols * row_bytes(c, c.cols_operand());
        const double ahead = ctas * (c.stages - 1) * weights;
        const double busy = std::min(1.0, ahead / bytes_under_way) * std::min(1.0, tiles / p.num_sms);
        return moved / bytes_per_us(p) / std::max(busy, 0.05);
    }

    double bytes_per_us(const Problem& p) const { return facts.memory_bytes_per_cycle * p.num_sms * clock_mhz; }

    /// What the product waits for: operands that are read, and written with other bits.
    double ahead_us(const Problem& p, const Candidate& candidate) const {
        const GemmConfig& c = candidate.config;
        const auto us = [&](double rows, const Operand& from, const Operand& to) {
            return widen_us + rows * (bytes_of(from.element, p.k) + bytes_of(to.element, p.k)) / bytes_per_us(p);
        };
        return (converts_a(candidate.tiling.ahead) ? us(expected_rows(p), p.a, c.a) : 0) +
               (converts_b(candidate.tiling.ahead) ? us(p.n, p.b, c.b) : 0);
    }

    double estimate_us(const Problem& p, const GemmConfig& c, int32_t num_ctas) const {
        const ExpectedBlocks blocks = expected_blocks(p, c.tile_m());
        const double tiles = blocks.mean * ceil_div(p.n, c.tile_n());
        const double waves = expected_waves(tiles / num_ctas, blocks.scatter), ctas = active_ctas(p, c, tiles);
        const double store = store_cycles * c.tile.rows * c.tile.cols + (c.sm80.k_warps > 1 ? sum_up_cycles : 0);
        const double compute_us =
            (waves * (ceil_div(p.k, c.tile.k) * block_cycles(c, ctas) + store * ctas) + first_cycles) / clock_mhz;
        const double memory = memory_us(p, c, ctas, tiles);
        return launch_us + std::max(compute_us, memory) + tail_share * std::min(compute_us, memory);
    }

    SmFacts facts;
};

inline double cost_us(const Problem& p, const Candidate& candidate) {
    Problem average = p;
    average.k = expected_k(p);
    CostModel model;
    model.facts = sm_facts(p.target);
    return model.ahead_us(average, candidate) +
           model.estimate_us(seen_by(average, candidate.config), candidate.config, candidate.num_ctas);
}

}  // namespace deep_gemm::sm80
