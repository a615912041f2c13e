// Hopper: what a config costs, by a model that was fitted to measurements (benchmarks/calibrate.py).
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "../problem.hpp"
#include "cost_constants.hpp"

namespace deep_gemm::sm90 {

/// Blocks of a tile's height; of 64 rows, those of padding are left out.
inline ExpectedBlocks expected_tiles(const Problem& p, int32_t height) {
    if (p.grouping != Grouping::m_contiguous || height != kWgmmaRows) return expected_blocks(p, height);
    const auto blocks_of = [](int32_t rows) { return ceil_div(rows, kWgmmaRows); };
    return {over_sizes(expected_expert_rows(p), blocks_of).mean * expected_weights(p)};
}

/// Times 64 rows that tiles of 256 rows multiply where those of nothing but padding are left out, on average. One such
/// step by itself takes as long as two: a warpgroup alone has nothing to promote under.
inline double expected_row_steps(const Problem& p) {
    const auto steps_of = [](int32_t rows_of_group) {
        const int32_t steps = ceil_div(rows_of_group, kWgmmaRows);
        return steps + (steps % 4 == 1 ? 1 : 0);
    };
    return over_sizes(expected_expert_rows(p), steps_of).mean * expected_weights(p);
}

/// Estimated time of a config in microseconds. `least`: no more than that, whatever stages and buffers the config has,
/// from what it has before shared memory is divided; and without powers, which take most of an estimate's time.
struct CostModel : CostConstants {
    bool least = false;

    double norm(double power, std::initializer_list<double> values) const {
        if (least) return std::max(values);
        double sum = 0;
        for (const double value : values) sum += value == 0 ? 0 : std::pow(value, power);
        return std::pow(sum, 1 / power);
    }

    /// Cycles that an element of D takes at the end of a tile.
    double element_cycles(const GemmConfig& c) const {
        const bool late = stores_late(c), adds = adds_to_memory(c.store);
        const double read = !c.add_c    ? 0
                            : c.swap_ab ? swapped_c_cycles_per_element
                            : late      ? late_c_cycles_per_element
                                        : c_cycles_per_element;
        if (bits(c.output) == 16)
            return read + (!is_staged(c.store)              ? direct_cycles_per_element
                           : !late                          ? tile_cycles_per_element
                           : warpgroup_rows(c) > kWgmmaRows ? late_tall_cycles_per_element
                                                            : late_cycles_per_element);
        const double late_plain = late ? late_plain_fp32_cycles_per_element : plain_fp32_cycles_per_element;
        if (!adds && is_staged(c.store)) return read + late_plain;
        if (late && c.sm90.wgmma_products) return read + late_fp32_cycles_per_element;
        return read + fp32_cycles_per_element + late_plain - plain_fp32_cycles_per_element;
    }

    /// Cycles that promoting one K block takes in a warpgroup, for each 64 rows.
    double promotion_cycles(const GemmConfig& c) const {
        const bool per_row_cols = c.col_scales().per_row();
        const double held = 8.0 * held_col_groups(c) / c.tile.cols;
        const double each = c.sm90.wgmma_products ? promote_wgmma_product_cycles
                            : !per_row_cols       ? promote_cycles
                            : c.row_scales().per_row()
                                ? held * promote_held_product_cycles + (1 - held) * promote_product_cycles
                                : promote_col_cycles;
        const double runs = per_row_cols ? 0 : block_scale_values(c);
        const double convert = c.block_sum() == Element::s32 ? integer_cycles : 0;
        return c.tile.cols / 2.0 * (each + convert) + (runs > 3 ? runs * run_cycles : 0);
    }

    /// A row that starts within a line takes two of them for each K block, and within a sector one more of those. That
    /// binds the L2, not the SM: where few CTAs run, they do not notice.
    double copy_cost(int32_t row_alignment, double busy) const {
        const double of_l2 = row_alignment == 64 ? copy_64 : row_alignment == 32 ? copy_32 : copy_16;
        return row_alignment >= kBestAlignment ? 1 : std::max(1.0, of_l2 * busy);
    }

    /// Cycles that a warpgroup takes to convert 64 packed rows of a stage, in turn with its products.
    double convert_in_turn(const GemmConfig& c) const {
        const Operand weights = c.rows_operand();
        const bool to_bytes = bits(c.cols_operand().element) == 8;
        if (!weights.packed()) return 0;
        if (c.sm90.promotes_once) return convert_once(c) / c.tile.rows * kWgmmaRows / 2;
        const double overlapped =
                         c.block_sum() == Element::fp32 && to_bytes ? convert_ahead_fp8_cycles : convert_ahead_cycles,
                     convert = !promotes_blocks(c)  ? (to_bytes ? 0 : convert_scaled_cycles)
                               : overlaps_blocks(c) ? overlapped
                               : converts_ahead(c)  ? convert_under_cycles
                                                    : convert_cycles;
        // Folded exponents are looked up in as many cycles.
        const bool more = weights.has_zeros() || folds_exponents(weights.element);
        const bool narrow = overlaps_blocks(c) && c.tile.cols < 64;
        const double subtracted = narrow ? subtract_narrow_cycles : subtract_cycles;
        return (convert + (more && to_bytes ? subtracted : 0)) / c.stages_of_block();
    }

    /// Cycles in which an SM converts a K block's rows to FP8 beside products, where sums are scaled when complete.
    double convert_once(const GemmConfig& c) const {
        const Operand weights = c.rows_operand();
        const bool more = weights.has_zeros() || folds_exponents(weights.element);
        return c.sm90.promotes_once ? c.tile.rows / kWgmmaRows * (convert_once_cycles + (more ? fold_once_cycles : 0))
                                    : 0;
    }

    /// Cycles in which an SM converts a stage's packed rows to 16 bits, whichever warpgroups do. To bytes takes fewer
    /// instructions, which never bind.
    double convert_on_sm(const GemmConfig& c) const {
        if (!c.rows_operand().packed() || bits(c.cols_operand().element) == 8) return 0;
        return c.tile.rows / kWgmmaRows * (c.scaled() ? conversion_cycles : convert_scaled_cycles) /
               c.stages_of_block();
    }

    /// Cycles of a stage beside 16 bits in which ends of a K block's groups other than its last hide behind nothing
    /// (docs/notes/packed-speed.md; of FP8 they were not measured).
    double group_ends(const GemmConfig& c) const {
        if (!c.rows_operand().packed() || bits(c.cols_operand().element) != 16 || !promotes_blocks(c)) return 0;
        const int32_t ends = kPackedK / std::min(kPackedK, c.row_scales().k) - 1;
        return ends * (c.sm90.rescales ? group_cycles : group_col_cycles * c.tile.cols) /
               (c.stages_of_block() * c.split_k.warpgroups);
    }

    /// Stages that a warpgroup holds: that of the block before, too, where the next is multiplied meanwhile.
    static double held_stages(const GemmConfig& c) {
        if (c.sm90.promotes_once) return 1.4;  // the block before is let go when the next is issued
        const bool converts_under_wgmma = c.rows_operand().packed() && !promotes_blocks(c);
        return overlaps_blocks(c) || converts_ahead(c) || converts_under_wgmma ? 2 : 1;
    }

    /// Cycles that one K block takes in a CTA. `busy`: CTAs over SMs.
    double block_cycles(const Problem& p, const GemmConfig& c, double busy) const {
        const double rows = c.tile.rows, cols = c.tile.cols, multiplies = rows / kWgmmaRows;
        const double tensor = tensor_cycles(c) * (c.sm90.wgmma_products ? 1.25 : 1) * slower_products;
        const double wgmma_cycles = tensor / multiplies;  // of 64 rows
        // Of rows that are converted, a thread reads its share once.
        const double row_width = row_bytes(c, c.rows_operand()), col_width = row_bytes(c, c.cols_operand());
        const double smem =
            (multiplies * (kWgmmaRows * row_width + cols * col_width) + rows * row_width + cols * col_width) /
            smem_bytes_per_cycle;
        const double row_cost = copy_cost(c.swap_ab ? p.row_alignment_b : p.row_alignment_a, busy),
                     col_cost = copy_cost(c.swap_ab ? p.row_alignment_a : p.row_alignment_b, busy);
        const double split = c.k_ctas() == 1 ? 1 : p.m <= c.tile_m() ? split_copies : split_shared_copies;
        const double l2 =
            (row_cost * rows * row_width / c.cluster.cols + col_cost * cols * col_width / c.cluster.rows) /
            (l2_bytes_per_cycle * (1 + spare_l2 * (1 - busy))) * split;
        const double subtiles = warpgroup_rows(c) / kWgmmaRows;
        const double waits = overlaps_blocks(c) || !promotes_blocks(c)  ? overlap_cycles
                             : !c.sm90.look_ahead && !converts_ahead(c) ? chain_cycles
                             : issues_in_order(c)                       ? ordered_cycles
                                                                        : ahead_cycles;
        // Of a stage, each promoted. A block of packed weights is promoted once, in however many stages it lies.
        const double promotions = c.rows_operand().packed() ? 1.0 / c.stages_of_block() : scale_groups(c);
        const double promoted = promotes_blocks(c) ? promotion_cycles(c) : 0;
        const double chain = subtiles * (wgmma_cycles + promotions * (promoted + waits) + convert_in_turn(c));
        const double held = c.split_k.warpgroups * held_stages(c);
        const double late = least ? 0 : fetch_cycles / std::max<double>(c.stages - held, 0.5);
        const double hidden = c.split_k.warpgroups > 1 ? hidden_cycles : 0;
        const bool wide = c.stages_of_block() > 1 && c.tile.cols > 128 && scale_groups(c) == 1;
        const double pair = !c.multicasts() ? 0
                            : subtiles > 1  ? multicast_tall_cycles
                            : wide          ? multicast_wide_cycles
                                            : multicast_cycles;
        const double products = norm(convert_once_norm, {tensor, convert_once(c)});
        return norm(block_norm, {products, smem, l2, chain / c.split_k.warpgroups, convert_on_sm(c), late}) - hidden +
               group_ends(c) + pair + (c.skips_padding ? padding_cycles : 0) +
               (c.split_k.last_tiles ? shared_cycles : 0);
    }

    /// Tiles of D whose rows are no whole lines of 128 bytes are copied in narrower pieces.
    double pieces_of_d(const GemmConfig& c) const {
        const bool whole = !is_staged(c.store) || adds_to_memory(c.store) || c.swap_ab ||
                           c.d_cols(c.tile.cols) * bits(c.output) / 8 % kSwizzleBytes == 0;
        return whole ? 1 : narrow_pieces;
    }

    /// Of so many waves of tiles, the last of which may be shared: each hides its own share of the memory's time, and
    /// what the last one, of fewer tiles, computes hides behind nothing that was copied before.
    double wave_by_wave_us(double waves, double wave_us, int32_t sharers, double memory_us) const {
        const double full = std::floor(waves), part = waves - full, of_wave = memory_us / waves;
        return (full > 0 ? full * norm(overlap_norm, {wave_us, of_wave}) : 0) +
               (part > 0 ? norm(overlap_norm, {wave_us / sharers, of_wave * part}) : 0);
    }

    double estimate_us(const Problem& p, const GemmConfig& c, int32_t num_ctas) const {
        const int32_t tile_m = c.super_tile_m(), tile_n = c.super_tile_n();
        ExpectedBlocks blocks = expected_tiles(p, tile_m);
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
        const double waves = wanted * (c.split_k.last_tiles ? std::floor(walks) + 1.0 / c.cluster.k
                                                            : expected_waves(walks, blocks.scatter));
        const double k_blocks = std::ceil(static_cast<double>(ceil_div(p.k, c.tile.k)) / c.k_ctas());
        const double elements = static_cast<double>(c.tile.rows) * c.tile.cols;
        const double tile = tile_cycles + (c.skips_padding ? padding_tile_cycles : 0) + elements * element_cycles(c);
        const double area = static_cast<double>(num_ctas / c.k_ctas()) * elements;
        const double cycles = block_cycles(p, c, static_cast<double>(num_ctas) / p.num_sms);
        const double wave_us = (k_blocks * cycles + tile) / clock_mhz, compute_us = waves * wave_us;
        const double power_us = 2e-6 * expected_rows(p) * p.n * p.k / tflops;

        const double rows = expected_rows(p), stored = rows * bytes_of(p.output, static_cast<double>(p.n));
        const double k = p.k,
                     operands = expected_weights(p) * p.n * bytes_of(p.b.element, k) + rows * bytes_of(p.a.element, k);
        const double written = stored * pieces_of_d(c), moved = operands + written + (p.add_c ? stored : 0);
        const double read_us = moved / memory_gb_per_s / 1e3, added = adds_to_memory(c.store) ? stored : 0;
        const double added_rate = c.swap_ab           ? added_swapped_gb_per_s
                                  : has_store_warp(c) ? added_gb_per_s
                                                      : added_unfetched_gb_per_s,
                     added_us = least ? 0 : added / added_rate / 1e3;
        const double idle = 1 - walks / (c.split_k.last_tiles ? waves : std::ceil(walks)) * num_ctas / p.num_sms;
        const double memory_us = read_us + std::max(0.0, read_us - idle_from_us) * idle *
                                               (added > 0                       ? 0
                                                : has_fixed_extents(c.grouping) ? idle_memory
                                                                                : idle_group_memory);
        const double split = (c.k_ctas() > 1 ? split_us + part_us * (c.k_ctas() - 2) : 0) +
                             (c.split_k.last_tiles ? shared_us : 0) + turn_us * (c.split_k.warpgroups - 1) +
                             split_us_per_element * elements * (1 - 1.0 / k_parts(c));
        const double last_us = bytes_of(p.output, area) * pieces_of_d(c) / last_gb_per_s / 1e3;
        const bool between = added > 0 && !c.scaled() && !has_store_warp(c) && walks > 1;  // tiles, nothing hides it
        const double busy_us = has_fixed_extents(c.grouping) && added == 0
                                   ? wave_by_wave_us(walks, wave_us, c.split_k.last_tiles ? 2 : 1, memory_us)
                                   : norm(overlap_norm, {compute_us, memory_us});
        const double hidden = between ? norm(own_added_norm, {norm(overlap_norm, {busy_us, power_us}), added_us})
                                      : norm(overlap_norm, {busy_us, power_us, added_us});
        const bool waits_for_last = c.grouping == Grouping::masked && waves > 1;  // while memory has little to do
        const double last_wave_us = waits_for_last ? idle_last_wave * wave_us * (std::ceil(walks) - walks) : 0;
        return launch_us + last_wave_us + (c.multicasts() ? multicast_us : 0) + split + last_us + hidden;
    }
};

}  // namespace deep_gemm::sm90
