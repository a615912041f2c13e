// SM80: what is decided once a candidate is chosen.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>

#include <numeric>

#include "../candidate.hpp"

namespace deep_gemm::sm80 {

/// Where threads copy, boxes say only which tensors there are: they copy what they need of them.
inline Choice finish(const Problem&, const Candidate& candidate) {
    const GemmConfig& c = candidate.config;
    Choice choice{candidate};
    choice.copies = {.rows_box = c.tile.rows,
                     .cols_box = c.tile.cols,
                     .mn_box = kMnBlock,
                     .row_scale_entries = scale_entries(c, c.row_scales()),
                     .col_scale_entries = scale_entries(c, c.col_scales()),
                     .row_scale_box = c.row_scales().per_row() ? c.tile.rows : 0,
                     .col_scale_box = c.col_scales().per_row() ? c.tile.cols : 0,
                     .zeros_box = c.rows_operand().has_zeros() ? c.tile.rows : 0,
                     .plain_operands = !c.sm80.copy_engine,
                     .plain_row_scales = !scales_in_boxes(c, true),
                     .plain_col_scales = !scales_in_boxes(c, false)};
    std::iota(choice.cta_order.begin(), choice.cta_order.end(), uint8_t{0});
    return choice;
}

}  // namespace deep_gemm::sm80
