// Hopper: where everything lies in shared memory, and how many arrivals each barrier waits for.
#pragma once

#include <deep_gemm/arch/sm90_loop.cuh>
#include <deep_gemm/arch/stage_plan.cuh>
#include <deep_gemm/epilogue/run_exchange.cuh>

namespace deep_gemm {

inline constexpr int32_t kSmemAlignment = 1024;  // of a 128-byte-swizzled stage

/// Whether D's staging buffers and the parts of a split K have room where the stages' operands were.
constexpr bool parts_fit_ring(const GemmConfig& c) {
    return staging_bytes(c) + parts_bytes(c) <=
           c.stages * (c.tile.rows * row_bytes(c, c.rows_operand()) + c.tile.cols * row_bytes(c, c.cols_operand()));
}

/// A column's scale as an operand of wgmma: two TF32 values and two zeros.
inline constexpr int32_t kColScaleBytes = 16;
inline constexpr int32_t kSplitWarps = 2;  // that write them

struct SmemPlan : StagePlan {
    int32_t staging, barriers, padding_barriers, parts, part_barriers, run_barriers, groups, padding, exchange;
    int32_t bytes;  // of the launch, alignment slack included
};

constexpr SmemPlan plan_smem(const GemmConfig& c) {
    SmemPlan p{};
    p.rows_bytes = c.tile.rows * row_bytes(c, c.rows_operand());
    p.cols_bytes = align_up(c.tile.cols * row_bytes(c, c.cols_operand()), 1024);
    p.row_scale_bytes =
        c.row_scales().per_row() ? align_up(scale_entries(c, c.row_scales()) * row_scale_places(c) * 4, 128) : 0;
    p.col_scale_bytes = c.sm90.wgmma_products ? c.tile.cols * kColScaleBytes
                        : copies_col_scales(c)
                            ? align_up(scale_entries(c, c.col_scales()) * col_scale_places(c) * 4, 128)
                            : 0;
    p.zero_bytes = align_up(zero_groups(c) * c.tile.rows * 4, 128);
    p.block_scale_bytes = align_up(block_scale_values(c) * 4, 16);

    p.staging = 0;
    p.barriers = p.place(c.split_k.parts_in_ring ? 0 : staging_bytes(c), c.stages);
    p.padding_barriers = p.barriers + (2 * c.stages + (has_store_warp(c) ? 2 : 0)) * 8;
    p.part_barriers = p.padding_barriers + (marks_padding(c) ? 2 : 0) * 8;
    p.run_barriers = p.part_barriers + part_barriers(c) * 8;
    const int32_t behind = align_up(p.run_barriers + exchange_barriers(c, fragment_d_cols(c)) * 8, 16);
    p.parts = c.split_k.parts_in_ring ? staging_bytes(c) : c.split_k.last_tiles ? p.rows : behind;
    p.groups = c.split_k.parts_in_ring || c.split_k.last_tiles ? behind : p.parts + parts_bytes(c);
    p.padding = p.groups + group_table_bytes(c);
    p.exchange = p.padding + align_up(padding_words(c) * 4, 16);
    p.bytes = p.exchange + exchange_bytes(c, fragment_d_cols(c)) +
              kSmemAlignment;  // the driver aligns dynamic shared memory to 16 bytes only
    // compute-sanitizer takes an operand that wgmma reads twice for one of twice the size: it must end inside as well.
    if (c.sm90.wgmma_products) p.bytes += c.tile.cols * kColScaleBytes;
    return p;
}

/// "full": the copying thread, and the warp that writes scales.
constexpr int32_t full_arrivals(const GemmConfig& c) {
    return 1 + (c.sm90.wgmma_products ? kSplitWarps : c.has_block_scales() ? 1 : 0);
}

/// "empty": every math warp that reads the stage, in every CTA that this CTA's copies reach.
constexpr int32_t empty_arrivals(const GemmConfig& c) {
    return (c.cluster.rows + c.cluster.cols - 1) * row_warpgroups(c) * 4;
}

/// Bytes that one stage's copies bring; scales that a warp writes are not among them.
constexpr int32_t stage_transaction_bytes(const GemmConfig& c) {
    return c.tile.rows * row_bytes(c, c.rows_operand()) + c.tile.cols * row_bytes(c, c.cols_operand()) +
           (c.row_scales().per_row() ? scale_entries(c, c.row_scales()) * copied_scales(c, c.tile.rows, c.swap_ab) * 4
                                     : 0) +
           (copies_col_scales(c) ? scale_entries(c, c.col_scales()) * copied_scales(c, c.tile.cols, !c.swap_ab) * 4
                                 : 0) +
           zero_groups(c) * c.tile.rows * 4;
}

}  // namespace deep_gemm
