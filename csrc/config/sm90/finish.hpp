// Hopper: what is decided once a candidate is chosen.
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>
#include <deep_gemm/load/sm90/boxes.cuh>

#include <algorithm>

#include "../candidate.hpp"
#include "clusters.hpp"
#include "ffma_line.hpp"
#include "l2.hpp"
#include "schedule.hpp"

namespace deep_gemm::sm90 {

inline Choice finish(const Problem& p, const Candidate& candidate) {
    const GemmConfig& c = candidate.config;
    Choice choice{candidate};
    // Scales of gates and ups of halves come apart.
    const bool rows_in_halves = c.gate.joins_halves() && c.swap_ab,
               cols_in_halves = c.gate.joins_halves() && !c.swap_ab;
    choice.copies = {
        .rows_box = rows_box(c),
        .cols_box = c.tile.cols / c.cluster.rows,
        .mn_box = kMnBlock,
        .last_rows = has_last_rows(c),
        .last_cols = has_last_cols(c),
        .row_scale_entries = rows_in_halves ? 1 : scale_entries(c, c.row_scales()),
        .col_scale_entries = cols_in_halves ? 1 : scale_entries(c, c.col_scales()),
        .row_scale_box = c.row_scales().per_row() ? (rows_in_halves ? half_box(c, c.tile.rows) : c.tile.rows) : 0,
        .col_scale_box = copies_col_scales(c) ? (cols_in_halves ? half_box(c, c.tile.cols) : c.tile.cols) : 0,
        .zeros_box = c.rows_operand().has_zeros() ? c.tile.rows : 0,
        .zero_groups = zero_groups(c),
        .d = is_staged(c.store) ? store_chunk(c) : StoreChunk{}};
    if (const std::optional<int32_t> every = ffma_yields(c)) choice.hint = ffma_yields_line(*every);
    choice.lines_below_bytes = lines_below_bytes(c);
    if (c.split_k.last_tiles) {
        const int32_t tiles = dense_tiles(c, p.m, p.n);
        choice.first_shared = tiles - shared_tiles(c, tiles, candidate.num_ctas);
    }
    choice.likely_blocks = likely_blocks(p, c.tile_m());
    choice.fetched_ahead = fetched_ahead(p);
    if (has_cta_order(c))
        choice.cta_order = cta_order_by_gpc(p.device_sms, candidate.num_ctas / c.cluster.size(), c.cluster.size());
    return choice;
}

}  // namespace deep_gemm::sm90
