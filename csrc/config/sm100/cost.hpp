// SM100: what a config costs.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>

#include <algorithm>
#include <cmath>

#include "../problem.hpp"
#include "cost_constants.hpp"

namespace deep_gemm::sm100 {

struct CostModel : CostConstants {
    /// Cycles that one K block takes in a CTA.
    double block_cycles(const Problem& p, const GemmConfig& c) const {
        const double tensor = tensor_cycles(c);
        const Element rows = c.rows_operand().element, cols = c.cols_operand().element;
        const int32_t row_bytes = converts(c) ? plan_smem(c).rows_bytes : c.tile.rows * copied_row_bytes(rows, cols);
        const double bytes =
            row_bytes + own_cols(c) * col_spans(c) * copied_row_bytes(cols, rows) + block_word_bytes(c);
        // Few tokens do not fill their box, which the copy engine fills with zeros.
        const int32_t missing = has_fixed_extents(c.grouping) ? std::max(c.tile_m() - p.m, 0) : 0;
        const double beyond = c.swap_ab ? static_cast<double>(missing) / mma_ctas(c) : missing;
        const double l2 =
            (bytes - beyond * col_spans(c) * copied_row_bytes(c.a.element, c.b.element)) / l2_bytes_per_cycle +
            beyond * beyond_cycles;
        const double late = fetch_cycles / std::max(c.stages - 1, 1);
        return std::max({tensor, l2, late, promotion_cycles(c), conversion_cycles(c)});
    }

    /// Of these, what warps take that convert packed rows.
    double conversion_cycles(const GemmConfig& c) const {
        return converts(c) ? convert_step_cycles * stage_steps(c) : 0;
    }

    /// Words of scales that a CTA copies with each K block, where they are more than few bytes: FP4's.
    static double block_word_bytes(const GemmConfig& c) {
        if (!has_several_words(c)) return 0;
        return block_words(c) * (1 + scale_blocks(c.tile.cols)) * kScaleBlockBytes;
    }

    /// Of these, what FP32 units and accumulators that are being read take.
    double promotion_cycles(const GemmConfig& c) const {
        if (!promotes(c)) return 0;
        const int32_t groups = promoted_groups(c);
        const double arithmetic = c.tile.cols * (c.col_scales().per_row() ? 2 : 1) * groups / promoted_cols;
        return std::max(arithmetic, (tensor_cycles(c) + arithmetic + promote_cycles * groups) / c.sm100.accumulators);
    }

    double estimate_us(const Problem& p, const GemmConfig& c, int32_t num_ctas) const {
        const ExpectedBlocks blocks = expected_blocks(p, c.super_tile_m());
        const double tiles = blocks.mean * ceil_div(p.n, c.super_tile_n());
        const double waves = expected_waves(tiles / (num_ctas / c.tile_ctas()), blocks.scatter);
        const double k_blocks = std::ceil(static_cast<double>(ceil_div(p.k, c.tile.k)) / c.cluster.k);
        const double split =
            c.cluster.k > 1 ? split_us + part_us * (c.cluster.k - 2) + split_cycles * c.tile.cols / clock_mhz : 0;
        const double store = store_cols(c) * (c.swap_ab ? swapped_store_cycles : store_cycles);
        const double multiply = k_blocks * block_cycles(p, c);
        const bool beside = c.sm100.accumulators > 1 && !promotes(c);  // the next tile's products
        const double tile = beside ? std::max(multiply, store) : multiply + store;
        const double compute_us = (waves * tile + store + tile_cycles) / clock_mhz;

        const double rows = expected_rows(p), n = p.n, k = p.k;
        const double scales = has_several_words(c) ? k / c.a.scaling.k : 0;  // of a row, a byte each
        const double moved = expected_weights(p) * n * (bytes_of(p.b.element, k) + scales) +
                             rows * (bytes_of(p.a.element, k) + scales) +
                             rows * bytes_of(p.output, n) * (p.add_c ? 2 : 1);
        const double memory_us = moved / memory_gb_per_s / 1e3;
        return launch_us + split + std::max(compute_us, memory_us) + tail_share * std::min(compute_us, memory_us);
    }
};

}  // namespace deep_gemm::sm100
