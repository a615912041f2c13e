// SM80: what is decided once a candidate is chosen.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>

#include <algorithm>
#include <cmath>

#include "../candidate.hpp"

namespace deep_gemm::sm80 {

/// Blocks of M walked together: a wave of tiles reads fewest bytes when it covers a square of the output.
inline int32_t choose_strip(const Problem& p, const GemmConfig& c, int32_t num_ctas) {
    const double square = std::sqrt(static_cast<double>(num_ctas) * c.tile.rows * c.tile.cols) / c.tile_m();
    const double most = p.grouping == Grouping::m_contiguous ? p.m : expected_group_rows(p);
    return static_cast<int32_t>(std::clamp(square + 0.5, 1.0, std::max(1.0, std::ceil(most / c.tile_m()))));
}

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
