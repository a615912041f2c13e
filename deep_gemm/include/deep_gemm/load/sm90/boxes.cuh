// The boxes in which the copy engine brings operands.
#pragma once

#include <deep_gemm/arch/sm90.cuh>
#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm {

/// Rows that one copy of the rows operand brings.
constexpr int32_t rows_box(const GemmConfig& c) { return c.skips_padding ? kWgmmaRows : c.tile.rows / c.cluster.cols; }

/// K blocks of its likely first tile that a CTA asks the L2 for while the groups' sizes are on their way: some 24 KB of
/// weights. None where padding is left out: blocks with padding are walked behind the others. Nor where a map
/// has gates and ups.
constexpr int32_t likely_k_blocks(const GemmConfig& c) {
    if (!has_group_table(c) || c.skips_padding || c.gate.joins()) return 0;
    const int32_t bytes = c.tile_n() * row_bytes(c, c.b), wanted = 24 << 10;
    return wanted < bytes ? 1 : wanted / bytes;
}

/// Whether an operand's last tile has a tensor map of its own. Not where a box is shared by multicast, nor where groups
/// have maps of their own, nor where boxes are of so many K, not rows, nor of gates and ups one by one.
constexpr bool has_last_rows(const GemmConfig& c) {
    return has_fixed_extents(c.grouping) && c.cluster.cols == 1 && !c.rows_operand().mn_major() &&
           !c.rows_operand().packed() && !c.gate.partial;
}
constexpr bool has_last_cols(const GemmConfig& c) {
    return has_fixed_extents(c.grouping) && c.cluster.rows == 1 && !c.cols_operand().mn_major() && !c.gate.partial;
}

}  // namespace deep_gemm
