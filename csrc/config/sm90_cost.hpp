// Hopper: what a config costs, by a model that was fitted to measurements. benchmarks/cost_model.py is the same in
// numpy.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "sm90.hpp"

namespace deep_gemm::sm90 {

/// Estimated time of a config in microseconds. Fitted to measured times of problems of all kinds on an H200
/// (benchmarks/calibrate.py; docs/performance.md says how well it does). Cycles are of a clock of 1.7 GHz.
struct CostModel {
    double clock_mhz = 1700;
    double launch_us = 2.816;          // launch, prologue, first copies
    double memory_gb_per_s = 4299;     // beyond the launch
    double tflops = 2500;              // what power allows
    double again_gb_per_s = 2.07e+04;  // operands that exceed the L2, read by more than one wave of tiles
    double l2_bytes = 4.386e+07;
    double last_gb_per_s = 3941;                        // D of the last wave of tiles, which hides behind nothing
    double idle_memory = 0.3, idle_group_memory = 0.1;  // reading takes longer by so much of the SMs' idle share, if it
    double idle_from_us = 20;                           // takes longer than this at all; of experts, whose counts vary
    double added_gb_per_s = 2400;            // FP32 added to memory by the L2, straight tiles, lines asked for before,
    double added_unfetched_gb_per_s = 1360;  // or not,
    double added_swapped_gb_per_s = 941;     // swapped tiles
    double overlap_norm = 3.092;          // how fully these hide each other: 1 adds them up, infinity takes the largest
    double own_added_norm = 1.8;          // the same of additions between BF16 tiles, by math warps themselves
    double smem_bytes_per_cycle = 144.7;  // wgmma operands read and copies written
    double l2_bytes_per_cycle = 66.23;    // into one SM, where all copy
    double spare_l2 = 0.02086;            // and so much more of it where hardly any do
    double split_copies = 1;         // times as much of the L2: CTAs that split K, of weights that no other copies,
    double split_shared_copies = 1;  // or that others copy too
    double copy_64 = 1.035, copy_32 = 1.231,
           copy_16 = 1.818;                 // times as much of the L2: rows aligned to so many bytes only
    double block_norm = 9;                  // as overlap_norm, of what limits a K block
    double promote_cycles = 1;              // an accumulator of a thread, scales uniform along columns
    double promote_col_cycles = 7.99;       // scales per column, in registers
    double promote_smem_cycles = 7.945;     // scales per column, read from shared memory
    double promote_product_cycles = 11.14;  // scales per row and per column, the product of two for each accumulator
    double promote_held_product_cycles = 8.927;  // the same, scales per column in registers
    double promote_wgmma_product_cycles = 2.73;  // the same, products by the tensor cores
    double run_cycles = 39.13;             // for each run of columns with its own block scale, where there are many
    double chain_cycles = 365.2;           // a K block's waits and issue, in turn
    double ahead_cycles = 118.2;           // the same for each 64 rows, where the next stage is looked for in advance
    double ordered_cycles = 40.46;         // the same, where warpgroups issue one after the other
    double overlap_cycles = 12.22;         // the same, the next block already under way
    double hidden_cycles = 15.6;           // of a K block, by warpgroups that take turns
    double fetch_cycles = 1499;            // until a stage that was let go is full again
    double multicast_us = 0.2859;          // until the CTAs of a pair have met
    double multicast_cycles = 56.09;       // a K block's wait for the slower of them,
    double multicast_tall_cycles = -22;    // where a warpgroup has another 64 rows meanwhile (the L2 is asked less),
    double multicast_cold_cycles = 66;     // and over such a CTA's tiles: the first operands come from memory,
    double multicast_tile_cycles = 4.751;  // a tile's
    double tile_cycles = 267.9;
    // An element of D at the end of a tile; late: while the next tile is under way. What calibrations do not have is
    // read off docs/performance.md ("Other D"): FP32 that is not added, C that is read, BF16 past the copy engine.
    double tile_cycles_per_element = 0.02398, late_cycles_per_element = 0.03476;  // BF16
    double late_tall_cycles_per_element = 0.02577;                                // the same late, of 256 rows
    double fp32_cycles_per_element = 0.142;                                       // FP32, added to memory
    double late_fp32_cycles_per_element = 0.061;                                  // the same late, beside products
    double plain_fp32_cycles_per_element = 0.09, late_plain_fp32_cycles_per_element = 0.15;
    double c_cycles_per_element = 0.2, late_c_cycles_per_element = 0.3, swapped_c_cycles_per_element = 0.5;
    double direct_cycles_per_element = 0.35;
    double padding_cycles = 64.49, padding_tile_cycles = 1678;  // a K block's and a tile's, where padding is left out
    double split_us = 0.5001, part_us = 0.03059;      // adding up a K that a cluster splits in two, each further part,
    double turn_us = 0.02031;                         // each further warpgroup that shares it,
    double split_us_per_element = 0.0002075;          // and each element that comes from elsewhere
    double shared_us = 3.088, shared_cycles = 8.039;  // where pairs share the last tiles: adding twice, each K block

    /// BF16 operands have some constants of their own, fitted to problems of theirs: nothing is promoted.
    static CostModel of(ElementType operand) {
        CostModel x;
        if (operand == ElementType::bf16) {
            x.clock_mhz = 1930;
            x.launch_us = 1.828;
            x.memory_gb_per_s = 3901;
            x.tflops = 1553;
            x.again_gb_per_s = 1.661e+04;
            x.last_gb_per_s = 3121;
            x.overlap_norm = 3.251;
            x.smem_bytes_per_cycle = 146.5;
            x.l2_bytes_per_cycle = 82.24;
            x.split_copies = 2.247;
            x.split_shared_copies = 1.35;
            x.overlap_cycles = 1;
            x.hidden_cycles = 0;
            x.fetch_cycles = 0;
            x.spare_l2 = 0.2796;
            x.multicast_us = 0.2963;
            x.multicast_tall_cycles = 31.43;
            x.multicast_cold_cycles = 0;
            x.part_us = 0.04195;
            x.tile_cycles = 1751;
            x.tile_cycles_per_element = 0.01683;
            x.multicast_cycles = 61.15;
            x.split_us = 0.05083;
            x.shared_us = 1.7;
            x.shared_cycles = 19;
            x.turn_us = 0.6213;
            x.split_us_per_element = 0.0002;
            x.added_gb_per_s = 1785;  // beside which own_added_norm was chosen
            x.added_unfetched_gb_per_s = 1785;
            x.added_swapped_gb_per_s = 1258;
            x.fp32_cycles_per_element = 0.1535;
        }
        return x;
    }

    static double norm(double power, std::initializer_list<double> values) {
        double sum = 0;
        for (const double value : values) sum += std::pow(value, power);
        return std::pow(sum, 1 / power);
    }

    /// Cycles that an element of D takes at the end of a tile.
    double element_cycles(const GemmConfig& c) const {
        const bool late = stores_late(c), adds = adds_to_memory(c.store);
        const double read = !c.add_c    ? 0
                            : c.swap_ab ? swapped_c_cycles_per_element
                            : late      ? late_c_cycles_per_element
                                        : c_cycles_per_element;
        if (c.output == ElementType::bf16)
            return read + (!is_staged(c.store)               ? direct_cycles_per_element
                           : !late                           ? tile_cycles_per_element
                           : c.warpgroup_rows() > kWgmmaRows ? late_tall_cycles_per_element
                                                             : late_cycles_per_element);
        const double late_plain = late ? late_plain_fp32_cycles_per_element : plain_fp32_cycles_per_element;
        if (!adds && is_staged(c.store)) return read + late_plain;
        if (late && c.wgmma_products) return read + late_fp32_cycles_per_element;
        return read + fp32_cycles_per_element + late_plain - plain_fp32_cycles_per_element;
    }

    /// Cycles that promoting one K block takes in a warpgroup, for each 64 rows.
    double promotion_cycles(const GemmConfig& c) const {
        const bool per_row_cols = c.col_scales() == ScaleKind::per_row;
        const double held = 8.0 * held_col_groups(c) / c.tile.cols;
        const double each = c.wgmma_products ? promote_wgmma_product_cycles
                            : !per_row_cols  ? promote_cycles
                            : c.row_scales() == ScaleKind::per_row
                                ? held * promote_held_product_cycles + (1 - held) * promote_product_cycles
                                : held * promote_col_cycles + (1 - held) * promote_smem_cycles;
        const double runs = per_row_cols ? 0 : block_scale_values(c);
        return c.tile.cols / 2.0 * each + (runs > 3 ? runs * run_cycles : 0);
    }

    /// A row that starts within a line takes two of them for each K block, and within a sector one more of those. That
    /// binds the L2, not the SM: where few CTAs run, they do not notice.
    double copy_cost(int32_t row_alignment, double busy) const {
        const double of_l2 = row_alignment == 64 ? copy_64 : row_alignment == 32 ? copy_32 : copy_16;
        return row_alignment >= kBestAlignment ? 1 : std::max(1.0, of_l2 * busy);
    }

    /// Cycles that one K block takes in a CTA. `busy`: CTAs over SMs; `waves`: tiles of a CTA.
    double block_cycles(const Problem& p, const GemmConfig& c, double busy, double waves) const {
        const double rows = c.tile.rows, cols = c.tile.cols, multiplies = rows / kWgmmaRows;
        const double tensor = tensor_cycles(c) * (c.wgmma_products ? 1.25 : 1);
        const double wgmma_cycles = tensor / multiplies;  // of 64 rows
        const double smem = (multiplies * (kWgmmaRows + cols) + rows + cols) * kSwizzleBytes / smem_bytes_per_cycle;
        const double row_cost = copy_cost(c.swap_ab ? p.row_alignment_b : p.row_alignment_a, busy),
                     col_cost = copy_cost(c.swap_ab ? p.row_alignment_a : p.row_alignment_b, busy);
        const double split = c.k_ctas() == 1 ? 1 : p.m <= c.tile_m() ? split_copies : split_shared_copies;
        const double l2 = (row_cost * rows / c.cluster.cols + col_cost * cols / c.cluster.rows) * kSwizzleBytes /
                          (l2_bytes_per_cycle * (1 + spare_l2 * (1 - busy))) * split;
        const double subtiles = c.warpgroup_rows() / kWgmmaRows;
        const double waits = overlaps_blocks(c) || !c.scaled() ? overlap_cycles
                             : issues_in_order(c)              ? ordered_cycles
                             : c.look_ahead                    ? ahead_cycles
                                                               : chain_cycles;
        const double chain = subtiles * (wgmma_cycles + (c.scaled() ? promotion_cycles(c) : 0) + waits);
        const int32_t held = c.k_warpgroups * (overlaps_blocks(c) ? 2 : 1);  // stages, by accumulators
        const double late = fetch_cycles / std::max<double>(c.stages - held, 0.5);
        const double hidden = c.k_warpgroups > 1 ? hidden_cycles : 0;
        const double tall = multicast_tall_cycles + multicast_cold_cycles / waves;
        const double pair = !c.multicasts() ? 0 : subtiles > 1 ? tall : multicast_cycles;
        return norm(block_norm, {tensor, smem, l2, chain / c.k_warpgroups, late}) - hidden + pair +
               (c.skips_padding ? padding_cycles : 0) + (c.shares_last ? shared_cycles : 0);
    }

    double estimate_us(const Problem& p, const GemmConfig& c, int32_t num_ctas) const {
        const int32_t tile_m = c.super_tile_m(), tile_n = c.super_tile_n();
        ExpectedBlocks blocks = expected_blocks(p, tile_m);
        // What padding leaves of a tile, on average. Masked tiles come in whole waves all the same; a contiguous
        // layout's blocks are no more than an estimate, so there are fewer of them instead.
        double wanted = 1;
        if (c.skips_padding) {
            const double full = expected_row_steps(p) * kWgmmaRows / tile_m;
            if (c.grouping == Grouping::masked)
                wanted = full / blocks.mean;
            else
                blocks.mean = full;
        }
        const double tiles = blocks.mean * ceil_div(p.n, tile_n);
        const double walks = tiles / (num_ctas / c.tile_ctas());  // tiles of a CTA
        const double waves =
            wanted * (c.shares_last ? std::floor(walks) + 1.0 / c.cluster.k : expected_waves(walks, blocks.scatter));
        const double k_blocks = std::ceil(static_cast<double>(ceil_div(p.k, c.tile.k)) / c.k_ctas());
        const double elements = static_cast<double>(c.tile.rows) * c.tile.cols;
        const double pair = c.multicasts() ? multicast_tile_cycles : 0;
        const double tile =
            tile_cycles + pair + (c.skips_padding ? padding_tile_cycles : 0) + elements * element_cycles(c);
        // A wave of tiles covers a square of D, no higher than a group. What it reads, other waves read again.
        const double area = static_cast<double>(num_ctas / c.k_ctas()) * elements;
        const double height = std::clamp(std::sqrt(area), static_cast<double>(tile_m),
                                         static_cast<double>(align_up(expected_group_rows(p), tile_m)));
        const double width = area / height;
        const double read =
            walks * wanted * (height * std::max(1.0, width / p.n) + width) * p.k * element_bytes(p.operand);
        const double cycles = block_cycles(p, c, static_cast<double>(num_ctas) / p.num_sms, waves);
        const double compute_us = waves * (k_blocks * cycles + tile) / clock_mhz;
        const double power_us = 2e-6 * expected_rows(p) * p.n * p.k / tflops;

        const double rows = expected_rows(p), stored = rows * p.n * element_bytes(p.output);
        const double operands = (expected_weights(p) * p.n + rows) * p.k * element_bytes(p.operand);
        const double moved = operands + stored * (p.add_c ? 2 : 1);
        const double again_us =
            std::max(0.0, read - operands) * std::max(0.0, 1 - l2_bytes / operands) / again_gb_per_s / 1e3;
        const double read_us = moved / memory_gb_per_s / 1e3, added = adds_to_memory(c.store) ? stored : 0;
        const double added_rate = c.swap_ab           ? added_swapped_gb_per_s
                                  : has_store_warp(c) ? added_gb_per_s
                                                      : added_unfetched_gb_per_s,
                     added_us = added / added_rate / 1e3;
        const double idle = 1 - walks / (c.shares_last ? waves : std::ceil(walks)) * num_ctas / p.num_sms;
        const double memory_us = read_us + std::max(0.0, read_us - idle_from_us) * idle *
                                               (added > 0                       ? 0
                                                : c.grouping == Grouping::dense ? idle_memory
                                                                                : idle_group_memory);
        const double split = (c.k_ctas() > 1 ? split_us + part_us * (c.k_ctas() - 2) : 0) +
                             (c.shares_last ? shared_us : 0) + turn_us * (c.k_warpgroups - 1) +
                             split_us_per_element * elements * (1 - 1.0 / c.k_parts());
        const double last_us = area * element_bytes(p.output) / last_gb_per_s / 1e3;
        const bool between = added > 0 && !c.scaled() && !has_store_warp(c) && walks > 1;  // tiles, nothing hides it
        const double hidden =
            between ? norm(own_added_norm, {norm(overlap_norm, {compute_us, memory_us, power_us}), added_us})
                    : norm(overlap_norm, {compute_us, memory_us, power_us, added_us});
        return launch_us + (c.multicasts() ? multicast_us : 0) + split + again_us + last_us + hidden;
    }
};

}  // namespace deep_gemm::sm90
