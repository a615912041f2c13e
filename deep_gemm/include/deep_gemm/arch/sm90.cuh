// Hopper: warps and registers.
#pragma once

#include <deep_gemm/config.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>

namespace deep_gemm {

inline constexpr int32_t kWgmmaRows = 64;
inline constexpr int32_t kSwizzleBytes = 128;  // a row of a stage
inline constexpr int32_t kMaxSmemBytes = 232448;

/// Neighbours along M or N that lie together where an operand is MN-major: a stage holds blocks of so many, each with
/// all of the K block. Either way it has 128 bytes for each row.
inline constexpr int32_t kMnBlock = 64;

/// Elements of a span of the swizzle.
constexpr int32_t span_k(Element element) { return elements_in(element, kSwizzleBytes); }

/// Lines of packed weights that one stage holds of 64 rows.
constexpr int32_t packed_stage_lines(const GemmConfig& c) {
    return packed_lines(c.rows_operand().element) / c.stages_of_block();
}

/// Bytes of an operand's row in a stage.
constexpr int32_t row_bytes(const GemmConfig& c, const Operand& operand) { return bytes_of(operand.element, c.tile.k); }

/// Spans of a column in a stage, and how far the next ones of all columns are.
constexpr int32_t col_spans(const GemmConfig& c) { return row_bytes(c, c.cols_operand()) / kSwizzleBytes; }
constexpr int32_t col_span_bytes(const GemmConfig& c) { return c.tile.cols * kSwizzleBytes; }

/// Warpgroups that divide a tile's rows among themselves, and rows of one: it walks them 64 at a time.
constexpr int32_t row_warpgroups(const GemmConfig& c) { return c.sm90.math_warpgroups / c.split_k.warpgroups; }
constexpr int32_t warpgroup_rows(const GemmConfig& c) { return c.tile.rows / row_warpgroups(c); }

/// Partial sums that make up an element before it is stored.
constexpr int32_t k_parts(const GemmConfig& c) { return c.k_ctas() * c.split_k.warpgroups; }

/// One warpgroup more than multiply: it loads.
constexpr int32_t threads(const GemmConfig& c) { return (c.sm90.math_warpgroups + 1) * 128; }

/// Entries of an operand's row scales in a stage: of four bytes, FP32 or words.
constexpr int32_t scale_entries(const GemmConfig& c, const Scaling& scaling) {
    return scaling.per_row() && entry_k(scaling) < c.tile.k ? c.tile.k / entry_k(scaling) : 1;
}

/// Groups of a stage that are promoted each by itself: as many as the operand with the smaller ones has.
constexpr int32_t scale_groups(const GemmConfig& c) {
    const int32_t rows = scale_entries(c, c.row_scales()), cols = scale_entries(c, c.col_scales());
    return !c.scaled() ? 1 : rows > cols ? rows : cols;
}

/// Words of zero points that a stage holds for each row.
constexpr int32_t zero_groups(const GemmConfig& c) {
    const int32_t k = c.rows_operand().zeros_k;
    return k == 0 ? 0 : k == kAll || k > c.tile.k ? 1 : c.tile.k / k;
}

/// Whether the copy engine brings the columns' scales: not where a warp writes them as operands of wgmma.
constexpr bool copies_col_scales(const GemmConfig& c) { return c.col_scales().per_row() && !c.sm90.wgmma_products; }

/// Cycles of the tensor cores for one K block: 64 rows x N columns x 32 bytes of K take N / 2.
constexpr int32_t tensor_cycles(const GemmConfig& c) {
    return c.tile.rows / kWgmmaRows * c.tile.cols * (row_bytes(c, c.a) / 32) / 2;
}

/// Registers a math thread may have; the CTA's pool is 65,536, granted to whole warpgroups in steps of 8.
constexpr int32_t math_registers(const GemmConfig& c) { return c.sm90.math_warpgroups < 3 ? 232 : 160; }

/// What is left to the warps that load.
constexpr int32_t load_registers(const GemmConfig& c) {
    return c.sm90.math_warpgroups < 3 ? 40 : 512 - 3 * math_registers(c);
}

/// A warpgroup's first row in the tile, and how far its second 64 rows are from there. Where padding is left out,
/// warpgroups are dealt 64 rows in turn, so that they share fairly those that are wanted. (Not everywhere: ptxas then
/// moves an address into a uniform register in each round.)
constexpr int32_t first_row(const GemmConfig& c, int32_t warpgroup) {
    return warpgroup % row_warpgroups(c) * (c.skips_padding ? kWgmmaRows : warpgroup_rows(c));
}
constexpr int32_t subtile_step(const GemmConfig& c) {
    return c.skips_padding ? kWgmmaRows * row_warpgroups(c) : kWgmmaRows;
}

}  // namespace deep_gemm
