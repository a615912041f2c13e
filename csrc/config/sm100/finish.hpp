// SM100: what is decided once a candidate is chosen.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>

#include <algorithm>
#include <numeric>

#include "../candidate.hpp"

namespace deep_gemm::sm100 {

/// What the L2 has room for.
inline constexpr double kL2Bytes = 126e6;

/// Boxes of an operand's scales, in which those of B's rows come, if of halves, part by part.
struct ScaleBox {
    int32_t rows, entries;
};

/// Those in the instruction in whole blocks.
inline ScaleBox scale_box(const GemmConfig& c, const Scaling& s, int32_t extent, int32_t entries, bool of_b) {
    const bool in_instruction = scales_in_instruction(c);
    if (!in_instruction && !s.in_conversion() && !(promotes(c) && s.per_row())) return {0, entries};
    const int32_t rows = in_instruction ? align_up(extent, kScaleRows) : extent;
    return of_b && c.gate.joins_halves() ? ScaleBox{half_box(c, rows), 1} : ScaleBox{rows, entries};
}

inline int32_t row_scale_entries(const GemmConfig& c) {
    if (c.row_scales().in_conversion()) return conversion_scale_words(c);
    return promotes(c) ? std::max(scale_entries(c, c.row_scales()), 1) : block_words(c);
}

inline Choice finish(const Problem& p, const Candidate& candidate) {
    const GemmConfig& c = candidate.config;
    Choice choice{candidate};
    const ScaleBox rows = scale_box(c, c.row_scales(), kRows, row_scale_entries(c), c.swap_ab),
                   cols = scale_box(c, c.col_scales(), c.tile.cols, block_words(c), !c.swap_ab);
    choice.copies = {.rows_box = c.tile.rows,
                     .cols_box = own_cols(c),
                     .mn_box = block_rows(unpacked_by_tma(c.a.element, c.b.element) ? c.b.element : c.a.element),
                     .row_scale_entries = rows.entries,
                     .col_scale_entries = cols.entries,
                     .row_scale_box = rows.rows,
                     .col_scale_box = cols.rows,
                     .zeros_box = zero_words(c) > 0 ? kRows : 0,
                     .zero_groups = zero_words(c),
                     .a_in_blocks = a_in_blocks(c),
                     .b_in_blocks = b_in_blocks(c),
                     .d = is_staged(c.store) ? store_chunk(c) : StoreChunk{}};
    choice.likely_blocks = likely_blocks(p, c.tile_m());
    std::iota(choice.cta_order.begin(), choice.cta_order.end(), uint8_t{0});
    return choice;
}

}  // namespace deep_gemm::sm100
