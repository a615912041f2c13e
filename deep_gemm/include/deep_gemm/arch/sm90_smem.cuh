// Addresses of the shared-memory plan, for one CTA.
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/group_table.cuh>
#include <deep_gemm/tile/k_groups.cuh>

namespace deep_gemm {

template <GemmConfig c>
struct Smem {
    static constexpr SmemPlan kPlan = plan_smem(c);
    static_assert(kPlan.bytes <= kMaxSmemBytes, "tile does not fit shared memory");
    static_assert(!c.split_k.last_tiles ||
                  shared_pieces(c) / 2 * split_k_part_bytes(c) <= kPlan.row_scales - kPlan.rows);
    static_assert(!c.split_k.parts_in_ring || (c.split_k.warpgroups > 1 && c.cluster.k == 1 && parts_fit_ring(c)));

    /// Of a word for each of the tile's rows, that of a thread's first row, where its warpgroup's 64 begin at
    /// `first_row`.
    static DG_DEVICE uint32_t thread_row_word(uint32_t words, int32_t first_row) {
        return Fragment16x8::thread_word(words, first_row);
    }

    uint32_t base;

    DG_DEVICE explicit Smem(const void* dynamic)
        : base((ptx::shared_address(dynamic) + kSmemAlignment - 1) & ~(kSmemAlignment - 1)) {}

    DG_DEVICE uint32_t staging(int warp) const { return base + kPlan.staging + warp * staging_bytes_per_warp(c); }
    DG_DEVICE uint32_t rows(int stage) const { return base + kPlan.rows + stage * kPlan.rows_bytes; }
    DG_DEVICE uint32_t cols(int stage) const { return base + kPlan.cols + stage * kPlan.cols_bytes; }
    DG_DEVICE uint32_t row_scales(int stage) const { return base + kPlan.row_scales + stage * kPlan.row_scale_bytes; }
    DG_DEVICE uint32_t col_scales(int stage) const { return base + kPlan.col_scales + stage * kPlan.col_scale_bytes; }
    DG_DEVICE uint32_t zeros(int stage) const { return base + kPlan.zeros + stage * kPlan.zero_bytes; }
    DG_DEVICE uint32_t block_scales(int stage) const {
        return base + kPlan.block_scales + stage * kPlan.block_scale_bytes;
    }
    /// What the owner of 16 rows is sent by others.
    DG_DEVICE uint32_t parts(int slot) const {
        return base + kPlan.parts + slot * (c.split_k.last_tiles ? split_k_part_bytes(c) : received_bytes(c));
    }
    DG_DEVICE uint32_t parts_barrier(int slot) const { return base + kPlan.part_barriers + slot * 8; }
    /// Nothing of the other CTA's ring will be read any more (SplitK::last_tiles).
    DG_DEVICE uint32_t ring_done() const { return parts_barrier(shared_pieces(c) / 2); }
    DG_DEVICE auto groups() const {
        if constexpr (c.grouping == Grouping::k_contiguous)
            return KGroupTable<c>{base + kPlan.groups};
        else
            return GroupTable<c>{base + kPlan.groups};
    }
    /// A tile's D lies in the staging buffers; and it has been copied away (has_store_warp).
    DG_DEVICE uint32_t staged() const { return base + kPlan.barriers + 2 * c.stages * 8; }
    DG_DEVICE uint32_t drained() const { return staged() + 8; }
    /// Of a tile, which rows are padding; when they lie there, and when all math warps have read them (marks_padding).
    DG_DEVICE uint32_t padding() const { return base + kPlan.padding; }
    DG_DEVICE uint32_t padding_known() const { return base + kPlan.padding_barriers; }
    DG_DEVICE uint32_t padding_read() const { return padding_known() + 8; }
    DG_DEVICE uint32_t full(int stage) const { return base + kPlan.barriers + stage * 8; }
    DG_DEVICE uint32_t empty(int stage) const { return base + kPlan.barriers + (c.stages + stage) * 8; }
    /// Of the warp that writes block scales: they come with the operands.
    DG_DEVICE uint32_t scales_full(int stage) const { return full(stage); }
};

}  // namespace deep_gemm
