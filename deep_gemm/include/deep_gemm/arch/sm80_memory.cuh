// SM80: where everything lies in shared memory.
#pragma once

#include <deep_gemm/arch/sm80.cuh>
#include <deep_gemm/arch/stage_plan.cuh>
#include <deep_gemm/epilogue/run_exchange.cuh>
#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm::sm80 {

/// Of a line; or of eight of them, by whose address the copy engine swaps chunks.
constexpr int32_t smem_alignment(const GemmConfig& c) { return c.sm80.copy_engine ? 1024 : kSwizzleBytes; }
inline constexpr int32_t kBoxAlignment = 128;  // of where the copy engine writes

/// An operand's scales in a stage: for each row, or each block of rows that a tile may have a part of (of halves, for
/// the block of gates and that of ups), and for each group of K, or word of groups.
constexpr int32_t scale_rows(const GemmConfig& c, const Scaling& scaling, int32_t extent) {
    if (scaling.per_block() && c.gate.blocks_in_halves()) return 2;
    return scaling.per_row() ? extent : scaling.per_block() ? ceil_div(extent, scaling.rows) : 0;
}
constexpr int32_t scale_entries(const GemmConfig& c, const Scaling& scaling) {
    return !scaling.any() || scaling.k == kAll || entry_k(scaling) > c.tile.k ? 1 : c.tile.k / entry_k(scaling);
}
/// Whether the copy engine brings a side's scales: not those of gates and ups, which lie in another order than a
/// tile's.
constexpr bool scales_in_boxes(const GemmConfig& c, bool rows) {
    const Scaling& scaling = rows ? c.row_scales() : c.col_scales();
    return c.sm80.copy_engine && scaling.per_row() && !(c.gate.joins() && c.swap_ab == rows);
}
constexpr int32_t scale_bytes(const GemmConfig& c, bool rows) {
    const Scaling& scaling = rows ? c.row_scales() : c.col_scales();
    if (!scaling.any() || scaling.per_channel()) return 0;
    const int32_t extent = rows ? c.tile.rows : c.tile.cols;
    const bool before_box = scales_in_boxes(c, rows) || scales_in_boxes(c, false);  // columns' scales are the last
    return align_up(scale_rows(c, scaling, extent) * scale_entries(c, scaling) * 4,
                    before_box ? kBoxAlignment : kChunkBytes);
}
/// Whether threads copy any of the scales of a stage.
constexpr bool copies_scales(const GemmConfig& c) {
    return (scale_bytes(c, true) > 0 && !scales_in_boxes(c, true)) ||
           (scale_bytes(c, false) > 0 && !scales_in_boxes(c, false));
}
/// What the boxes of a stage bring, as the copy engine counts it: FP4 that it unpacks, as it lies in memory.
constexpr int32_t operand_box_bytes(const GemmConfig& c, const Operand& operand) {
    return row_bytes(c, operand) / (in_containers(c, operand) ? 2 : 1);
}
constexpr int32_t stage_box_bytes(const GemmConfig& c) {
    return c.tile.rows * operand_box_bytes(c, c.rows_operand()) + c.tile.cols * operand_box_bytes(c, c.cols_operand()) +
           (scales_in_boxes(c, true) ? c.tile.rows * scale_entries(c, c.row_scales()) * 4 : 0) +
           (scales_in_boxes(c, false) ? c.tile.cols * scale_entries(c, c.col_scales()) * 4 : 0);
}
/// That "full" waits for: each thread that copies, when its copies have come, and the one that has written what tile it
/// is, and with the copy engine promises its bytes.
constexpr int32_t full_arrivals(const GemmConfig& c) {
    return 1 + (!c.sm80.copy_engine || copies_scales(c) ? copy_threads(c) : 0);
}

/// The rows' words of zero points, as if they were scales.
constexpr Scaling zero_words(const GemmConfig& c) {
    const Operand& rows = c.rows_operand();
    return rows.has_zeros() ? Scaling{Element::s32, 1, rows.zeros_k} : kUnscaled;
}
template <Constant<GemmConfig> c>
struct ZeroWords {
    static constexpr Scaling kScaling = zero_words(c);
};
constexpr int32_t zero_entries(const GemmConfig& c) {
    return c.rows_operand().has_zeros() ? scale_entries(c, zero_words(c)) : 0;
}

inline constexpr int32_t kTileBytes = 32;    // a tile's coordinates, in the stage of its first K block
inline constexpr int32_t kBarrierBytes = 8;  // of each, and a stage has two

/// What warps that split K send to the first of them.
constexpr int32_t parts_bytes(const GemmConfig& c) { return (c.sm80.k_warps - 1) * c.tile.rows * c.tile.cols * 4; }

/// And CTAs that do, to the first of them: a part of each of its warps that store, which a barrier of its own counts.
constexpr int32_t storing_warps(const GemmConfig& c) { return c.sm80.row_warps * c.col_warps; }
constexpr int32_t cta_part_bytes(const GemmConfig& c) { return warp_rows(c) * warp_cols(c) * 4; }
constexpr int32_t cta_parts_bytes(const GemmConfig& c) {
    return (c.cluster.k - 1) * storing_warps(c) * cta_part_bytes(c);
}

struct SmemPlan : StagePlan {
    int32_t tiles, barriers, parts, cta_parts, cta_barriers, groups, exchange;  // offsets
    int32_t bytes;  // of the launch, alignment slack included
};

constexpr SmemPlan plan_smem(const GemmConfig& c) {
    SmemPlan p{};
    p.rows_bytes = c.tile.rows * row_bytes(c, c.rows_operand());
    p.cols_bytes = c.tile.cols * row_bytes(c, c.cols_operand());
    p.row_scale_bytes = scale_bytes(c, true);
    p.col_scale_bytes = scale_bytes(c, false);
    p.zero_bytes = zero_entries(c) * c.tile.rows * 4;

    p.tiles = p.place(0, c.stages);
    p.barriers = p.tiles + c.stages * kTileBytes;
    p.parts = p.barriers + 2 * c.stages * kBarrierBytes;
    p.cta_parts = p.parts + parts_bytes(c);
    p.cta_barriers = p.cta_parts + cta_parts_bytes(c);
    p.groups = p.cta_barriers + (c.cluster.k > 1 ? align_up(storing_warps(c) * kBarrierBytes, 16) : 0);
    p.exchange = align_up(p.groups + group_table_bytes(c), 4);
    p.bytes = p.exchange + exchange_bytes(c, fragment_d_cols(c)) +
              smem_alignment(c);  // the driver aligns it to 16 bytes only
    return p;
}

}  // namespace deep_gemm::sm80
