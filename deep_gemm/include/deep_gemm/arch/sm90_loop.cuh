// Hopper: how a warpgroup goes through its K blocks.
#pragma once

#include <deep_gemm/arch/sm90.cuh>
#include <deep_gemm/scale/runs.cuh>
#include <deep_gemm/store/sm90/chunks.cuh>
#include <deep_gemm/store/sm90/part_plan.cuh>
#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm {

/// Scales per column, in groups of 8 columns, that a thread reads into registers before the tensor cores start: two
/// values each. As many as there is room for beside the accumulators.
constexpr int32_t held_col_groups(const GemmConfig& c) {
    if (!copies_col_scales(c)) return 0;
    const int32_t accumulators = (warpgroup_rows(c) / kWgmmaRows + 1) * Fragment16x8::registers(c.tile.cols);
    constexpr int32_t kOthers =
        22;  // addresses, the ring, scales per row: fewer, and K groups spill (ptxas -v, CUDA 13.0)
    const int32_t room = (math_registers(c) - kOthers - accumulators) / 2, groups = c.tile.cols / Fragment16x8::kCols;
    return room < groups ? (room < 0 ? 0 : room) : groups;
}

/// The others are read while promoting, several times as slowly, and the stage is kept until promotion is done.
constexpr bool scales_stay_in_smem(const GemmConfig& c) {
    return copies_col_scales(c) && held_col_groups(c) < c.tile.cols / Fragment16x8::kCols;
}

/// A thread's share of a K block of rows that are converted in registers, to what the columns are.
constexpr int32_t fragment_registers(const GemmConfig& c) {
    return c.rows_operand().packed() ? kWgmmaRows * row_bytes(c, c.cols_operand()) / 128 / 4 : 0;
}

/// Whether sums of a K block are scaled before they are added to others.
constexpr bool promotes_blocks(const GemmConfig& c) { return c.scaled() && !c.sm90.promotes_once; }

/// Whether the next K block is multiplied while this one is promoted. Takes a second partial accumulator; without it,
/// promotion and the waits around it are hidden by the other warpgroup alone.
constexpr bool overlaps_blocks(const GemmConfig& c) {
    const int32_t scales =
        c.col_scales().per_row() && !scales_stay_in_smem(c) ? c.tile.cols / 4 : block_scale_values(c);
    return promotes_blocks(c) && !c.sm90.rescales && scale_groups(c) == 1 && warpgroup_rows(c) == kWgmmaRows &&
           !c.sm90.wgmma_products &&
           3 * c.tile.cols / 2 + 2 * (scales + fragment_registers(c)) <= math_registers(c) - 36;
}

/// Whether packed rows of the next K block are converted while this one is multiplied, where its sums want promotion
/// and registers have no second set of those. (Integers take registers to become FP32, and stages of 16 bits are few.)
constexpr bool converts_ahead(const GemmConfig& c) {
    return c.rows_operand().packed() && c.cols_operand().element == Element::e4m3 && promotes_blocks(c) &&
           scale_groups(c) == 1 && !overlaps_blocks(c) && !c.sm90.look_ahead && !c.col_scales().per_row() &&
           c.tile.cols + 2 * fragment_registers(c) <= math_registers(c) - 40;
}

/// Whether a tile is stored while the next one's first rows are multiplied. (Stores past the copy engine would wait for
/// the L2 with wgmma under way; clearing padding beside them takes more registers than wide tiles have.)
constexpr bool stores_late(const GemmConfig& c) {
    return c.sm90.look_ahead && is_staged(c.store) && !(c.grouping == Grouping::m_psum && c.tile.cols > 128);
}

/// Whether a stage is let go before the next issue, where a warpgroup looks ahead, and not behind it. It may go as soon
/// as its wgmma are over; ptxas mostly moves promotion before the arrival. Faster for 128x192 and for 256 rows
/// (docs/notes/tried.md).
constexpr bool frees_early(const GemmConfig& c) {
    return c.sm90.look_ahead && c.col_scales().per_block() && (warpgroup_rows(c) > kWgmmaRows || c.tile.cols == 192);
}

/// Whether warpgroups that rescale one set of sums issue a group's products in order: in the widest tiles 2 to 8 %
/// faster, except with groups of half a block (docs/notes/packed-speed.md).
constexpr bool rescales_in_order(const GemmConfig& c) {
    return c.sm90.rescales && c.row_scales().k != kPackedK / 2 && c.stages_of_block() > 1 && c.tile.cols == 256;
}

/// Whether warpgroups issue a K block's wgmma one after the other (mma/sm90/issue_order.cuh). With 128 rows each, one
/// always has the other half to multiply. Where the tensor cores form products of scales, an order costs more than it
/// gains; in turn it does too, but where promotion takes long: converted rows beside a scale for each column; or where
/// the next block's rows are converted already.
constexpr bool issues_in_order(const GemmConfig& c) {
    const bool slow_turns = c.rows_operand().packed() && c.col_scales().per_row() && scale_groups(c) == 1 &&
                            !overlaps_blocks(c) && c.tile.cols >= 96 && c.tile.cols <= 128;
    const bool alternate =
        c.sm90.look_ahead || ((slow_turns || converts_ahead(c) || rescales_in_order(c)) && c.split_k.warpgroups == 1);
    return alternate && !c.sm90.wgmma_products && warpgroup_rows(c) == kWgmmaRows && c.sm90.math_warpgroups > 1;
}

/// Whether a warp of its own issues the copies that store D. Takes staging buffers for all of a tile.
constexpr bool has_store_warp(const GemmConfig& c) {
    return (stores_late(c) || ((overlaps_blocks(c) || !c.scaled()) && !c.swap_ab)) && is_staged(c.store) &&
           k_parts(c) == 1 && c.sm90.math_warpgroups > 1 && c.store.buffers == store_chunks_per_tile(c) &&
           (c.grouping != Grouping::k_contiguous || adds_to_memory(c.store));
}

}  // namespace deep_gemm
