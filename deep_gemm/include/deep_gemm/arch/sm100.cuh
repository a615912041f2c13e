// SM100: warps, a pair of CTAs, the matrix instruction.
//
// A CTA has 128 rows of a tile, a lane of tensor memory for each. Two CTAs that differ in ClusterShape::rows are a
// pair: one of them, the leader, issues instructions of 256 rows for both. Each brings its own rows and half of the
// columns.
#pragma once

#include <deep_gemm/config.cuh>

namespace deep_gemm::sm100 {

inline constexpr int32_t kRows = 128;          // of a CTA
inline constexpr int32_t kWarpRows = 32;       // of a store warp: those that it reaches in tensor memory
inline constexpr int32_t kSwizzleBytes = 128;  // a row of a stage
inline constexpr int32_t kStepBytes = 32;      // of K that one instruction multiplies
inline constexpr int32_t kMaxSmemBytes = 232448;

/// Bits that an element takes in a stage: those of both operands are the same.
constexpr int32_t stage_bits(Element element, Element other) {
    return unpacked_by_tma(element, other) ? 8 : bits(element);
}
/// Bytes of such a row that the copy engine reads, and counts.
constexpr int32_t copied_row_bytes(Element element, Element other) {
    return unpacked_by_tma(element, other) ? kSwizzleBytes / 2 : kSwizzleBytes;
}
/// K that one stage holds, and that one instruction multiplies.
constexpr int32_t stage_k(const Operand& a, const Operand& b) {
    return kSwizzleBytes * 8 / stage_bits(a.element, b.element);
}
constexpr int32_t step_k(const Operand& a, const Operand& b) {
    return kStepBytes * 8 / stage_bits(a.element, b.element);
}
/// Where an operand is MN-major, a stage holds blocks of so many rows, each with all of the K block.
constexpr int32_t block_rows(Element element) { return elements_in(element, kSwizzleBytes); }

/// Whether rows are packed weights, which warps convert into tensor memory. (Those on columns stay what they are.)
constexpr bool converts(const GemmConfig& c) { return c.rows_operand().packed(); }
/// K of a stage of theirs: that of a block.
constexpr int32_t stage_k_of(const Operand& a, const Operand& b) { return b.packed() ? kPackedK : stage_k(a, b); }

/// Instructions of a stage; and spans of 128 bytes of K that it has of a column.
constexpr int32_t stage_steps(const GemmConfig& c) {
    return (converts(c) ? bytes_of(c.cols_operand().element, kPackedK) : kSwizzleBytes) / kStepBytes;
}
constexpr int32_t col_spans(const GemmConfig& c) { return stage_steps(c) * kStepBytes / kSwizzleBytes; }

/// Whether the instruction multiplies scales too: exponents, or NVFP4's E4M3.
constexpr bool scales_in_instruction(const GemmConfig& c) { return c.a.scaling.in_instruction(); }

/// Whether words of A's and of B's scales come in blocks of rows.
constexpr bool a_in_blocks(const GemmConfig& c) { return c.swap_ab ? c.sm100.col_blocks : c.sm100.row_blocks; }
constexpr bool b_in_blocks(const GemmConfig& c) { return c.swap_ab ? c.sm100.row_blocks : c.sm100.col_blocks; }

/// Words of scales that rows of either operand have in a K block, and whether these are several: FP4's are.
constexpr int32_t block_words(const GemmConfig& c) { return words_per_block(c.a.scaling, c.tile.k); }
constexpr bool has_several_words(const GemmConfig& c) { return block_words(c) > 1; }

/// Whether an operand's scales are multiplied in registers, with sums of so much of K as shares them.
constexpr bool is_promoted(const Scaling& s) { return s.type == Element::fp32 && GemmTask::scales_blocks(s); }
constexpr bool promotes(const GemmConfig& c) { return is_promoted(c.a.scaling) || is_promoted(c.b.scaling); }

/// Groups of a stage's K whose sums are promoted each by itself.
constexpr int32_t promoted_groups(const GemmConfig& c) {
    int32_t group_k = c.tile.k;
    if (is_promoted(c.a.scaling) && c.a.scaling.k < group_k) group_k = c.a.scaling.k;
    if (is_promoted(c.b.scaling) && c.b.scaling.k < group_k) group_k = c.b.scaling.k;
    return c.tile.k / group_k;
}

/// CTAs that one instruction is for.
constexpr int32_t mma_ctas(const GemmConfig& c) { return c.cluster.rows; }

/// Columns of a tile that a CTA brings into its shared memory.
constexpr int32_t own_cols(const GemmConfig& c) { return c.tile.cols / mma_ctas(c); }

/// Warpgroups that read sums, the first ones: warp w of a CTA must be w modulo 4 to read lanes 32 w of tensor memory.
/// Where they add sums up, two divide the columns, so that one computes while the other waits for tensor memory, and a
/// thread has no more than half of a tile's sums.
constexpr int32_t store_warpgroups(const GemmConfig& c) {
    if (!promotes(c) || c.tile.cols < 64 || c.tile.cols % 32 != 0) return 1;
    // Columns that share a scale of D are one thread's. (Behind a gate they are few enough for a warpgroup only where
    // sums are too many.)
    return c.output_scaling.any() && !c.swap_ab && !c.gate.any() && c.tile.cols / 2 % c.output_scaling.k != 0 ? 1 : 2;
}
constexpr int32_t store_warps(const GemmConfig& c) { return 4 * store_warpgroups(c); }

/// Columns of a tile that a store warp has.
constexpr int32_t store_cols(const GemmConfig& c) { return c.tile.cols / store_warpgroups(c); }

/// One warpgroup more has a warp for each of the other roles, and the last one converts.
constexpr int32_t threads(const GemmConfig& c) { return (store_warpgroups(c) + (converts(c) ? 2 : 1)) * 128; }

/// Registers of a thread that stores, where there are more than two warpgroups, and what is left to the others of
/// 65,536, which are granted in steps of 8.
constexpr bool moves_registers(const GemmConfig& c) { return threads(c) > 256; }
constexpr int32_t store_registers(const GemmConfig& c) {
    return store_warpgroups(c) == 1 ? 232 : converts(c) ? 168 : 208;
}
constexpr int32_t other_registers(const GemmConfig& c) {
    const int32_t all = 65536 / threads(c) / 8 * 8 * (threads(c) / 128), stores = store_warpgroups(c);
    return (all - stores * store_registers(c)) / (threads(c) / 128 - stores) / 8 * 8;
}

/// Cycles of the tensor cores for one K block: 128 rows x N columns x 32 bytes of K take N / 2.
constexpr int32_t tensor_cycles(const GemmConfig& c) { return c.tile.cols / 2 * stage_steps(c); }

}  // namespace deep_gemm::sm100
