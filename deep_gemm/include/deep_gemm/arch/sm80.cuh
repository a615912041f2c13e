// SM80 and what follows it without wgmma: warps, a stage, the matrix instruction.
//
// Warps multiply, and at the end of a tile store what they hold of it. What they multiply is copied some K blocks
// ahead: by a warp of its own where sums are few, else by four of them at a time, in turn.
#pragma once

#include <deep_gemm/config.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>

namespace deep_gemm::sm80 {

inline constexpr int32_t kSwizzleBytes = 128, kChunkBytes = 16;  // a line of a stage, and what one thread copies
inline constexpr int32_t kChunks = kSwizzleBytes / kChunkBytes;
inline constexpr int32_t kStepBytes = 32;  // of K that two loads of 8x8 matrices bring
inline constexpr int32_t kMaxWarps = 8;    // that have 255 registers a thread

/// Neighbours along M or N that lie together where an operand is MN-major, of 16 bits: a stage holds blocks of so many,
/// each with all of the K block.
inline constexpr int32_t kMnBlock = 64;

/// Bits that an element takes in a stage. FP4 beside 8 bits lies there in the first half of each 16 bytes, from where
/// it is loaded as bytes.
constexpr int32_t stage_bits(Element element, Element other) {
    return unpacked_by_tma(element, other) ? 8 : bits(element);
}
constexpr bool in_containers(const GemmTask& c, const Operand& operand) {
    return unpacked_by_tma(operand.element, c.a.element) || unpacked_by_tma(operand.element, c.b.element);
}
constexpr int32_t stage_bits(const GemmTask& c, const Operand& operand) {
    return in_containers(c, operand) ? 8 : bits(operand.element);
}

/// K that a warp multiplies of a stage: a line of the operand with fewer bits; beside packed weights no less than their
/// blocks' K.
constexpr int32_t stage_k(const Operand& a, const Operand& b) {
    const int32_t line = kSwizzleBytes * 8 / stage_bits(a.element, b.element);
    if (b.packed()) return line < kPackedK ? kPackedK : line;
    const int32_t line_b = kSwizzleBytes * 8 / stage_bits(b.element, a.element);
    return line < line_b ? line_b : line;
}

constexpr int32_t row_bytes(const GemmConfig& c, const Operand& operand) {
    return c.tile.k * stage_bits(c, operand) / 8;
}

/// Whether the instruction multiplies scales: sums are complete as it makes them. Else those of K blocks are promoted.
constexpr bool scales_in_instruction(const GemmTask& c) { return c.a.scaling.in_instruction(); }
constexpr bool promotes(const GemmTask& c) { return c.scaled() && !scales_in_instruction(c); }

/// That multiply.
constexpr int32_t warps(const GemmConfig& c) { return c.sm80.row_warps * c.col_warps * c.sm80.k_warps; }
constexpr int32_t math_threads(const GemmConfig& c) { return warps(c) * 32; }

constexpr int32_t warp_rows(const GemmConfig& c) { return c.tile.rows / c.sm80.row_warps; }
constexpr int32_t warp_cols(const GemmConfig& c) { return c.held_cols(); }

/// Whether one set of sums serves groups of K with scales of their own: rows' scales that are near each other, and sums
/// of 16 bits, which are true FP32.
constexpr bool rescales(const GemmConfig& c) { return promotes(c) && c.b.near_scales != 0; }
/// Whether each stage says what tile it is of, since sums leave no registers to keep that over all of K; else a tile's
/// first.
constexpr bool tile_in_each_stage(const GemmConfig& c) { return rescales(c); }
/// A warp's sums, of K blocks that are promoted those of a block too.
constexpr int32_t warp_sums(const GemmConfig& c) {
    return (promotes(c) && !rescales(c) ? 2 : 1) * warp_rows(c) * warp_cols(c);
}

/// Whether a warp of its own copies: where the others multiply little, or convert weights, else one would be too slow.
/// (Where sums are many, there would be no registers for it: those of a quarter of an SM are two warps'.)
constexpr bool has_copy_warp(const GemmConfig& c) {
    return c.b.packed() ? warp_sums(c) <= 64 * 16 : warp_rows(c) * warp_cols(c) <= 64 * 8;
}
constexpr int32_t threads(const GemmConfig& c) { return math_threads(c) + (has_copy_warp(c) ? 32 : 0); }
/// Whether one warp copies all stages.
constexpr bool one_warp_copies(const GemmConfig& c) { return has_copy_warp(c) || c.sm80.copy_engine; }
/// That copy a stage, and how many such sets take turns.
constexpr int32_t copy_threads(const GemmConfig& c) { return one_warp_copies(c) ? 32 : 128; }
constexpr int32_t copy_turns(const GemmConfig& c) { return one_warp_copies(c) ? 1 : math_threads(c) / copy_threads(c); }
/// Of a warp's rows, those that one instruction multiplies.
constexpr int32_t row_pieces(const GemmConfig& c) { return warp_rows(c) / Fragment16x8::kRows; }

/// Of its columns, groups of which one instruction multiplies each.
constexpr int32_t col_groups(const GemmConfig& c) { return warp_cols(c) / Fragment16x8::kCols; }

/// Whether an operand, packed weights when they are like the other one, is converted in registers to twice the bits.
constexpr bool widens(const GemmConfig& c, const Operand& operand) {
    return bits(c.sm80.multiplied_as) > (operand.packed() ? bits(c.a.element) : stage_bits(c, operand));
}
constexpr bool widens_both(const GemmConfig& c) { return widens(c, c.a) && widens(c, c.b); }
/// Whether a kernel before the product has made FP16 of an A of E4M3 (kernels/widen.cuh): no other FP16 has scales of
/// groups.
constexpr bool reads_widened_a(const GemmConfig& c) { return c.a.element == Element::fp16 && c.a.scaling.per_row(); }

/// Steps of K that a warp multiplies of a stage.
constexpr int32_t steps(const GemmConfig& c) {
    return bytes_of(c.sm80.multiplied_as, c.tile.k) / c.sm80.k_warps / kStepBytes;
}
/// The step behind which warps copy the next stage, into that of the block before: not so late that copies come too
/// late, nor, where warps promote and so drift apart, so early that they wait until the last one has read it. (Of two
/// stages one is all that is under way.)
constexpr int32_t copy_step(const GemmConfig& c) { return promotes(c) && c.stages > 2 ? steps(c) / 4 : 0; }

/// Of K that a scale is for, where sums of blocks are scaled: of both operands' the smaller.
constexpr int32_t scaled_k(const GemmConfig& c) {
    const bool rows = GemmTask::scales_blocks(c.row_scales()), cols = GemmTask::scales_blocks(c.col_scales());
    return rows && (!cols || c.row_scales().k < c.col_scales().k) ? c.row_scales().k : c.col_scales().k;
}
/// Groups of scales along the K that a warp has of a stage.
constexpr int32_t scale_groups(const GemmConfig& c) {
    const int32_t k = c.tile.k / c.sm80.k_warps;
    return promotes(c) && scaled_k(c) < k ? k / scaled_k(c) : 1;
}
/// Stages that make up a group, where they are the shorter ones.
constexpr int32_t group_stages(const GemmConfig& c) {
    return promotes(c) && scaled_k(c) > c.tile.k ? scaled_k(c) / c.tile.k : 1;
}

}  // namespace deep_gemm::sm80
