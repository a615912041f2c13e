// SM80: what is decided once a candidate is chosen.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>

#include "../candidate.hpp"

namespace deep_gemm::sm80 {

/// Boxes say only which tensors there are: threads copy what they need of them.
inline Choice finish(const Problem&, const Candidate& candidate) {
    const GemmConfig& c = candidate.config;
    Choice choice{candidate};
    choice.copies = {.rows_box = c.tile.rows,
                     .cols_box = c.tile.cols,
                     .mn_box = kMnBlock,
                     .row_scale_box = c.row_scales().per_row() ? c.tile.rows : 0,
                     .col_scale_box = c.col_scales().per_row() ? c.tile.cols : 0,
                     .zeros_box = c.rows_operand().has_zeros() ? c.tile.rows : 0};
    return choice;
}

}  // namespace deep_gemm::sm80
