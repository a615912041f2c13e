// Addresses of the shared-memory plan, for one CTA.
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>
#include <deep_gemm/arch/stage_smem.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct Smem : StageSmem<c, plan_smem(c), kSmemAlignment> {
    using Base = typename Smem::StageSmem;
    using Base::Base, Base::base, Base::kPlan;

    static_assert(kPlan.bytes <= kMaxSmemBytes, "tile does not fit shared memory");
    static_assert(!c.split_k.last_tiles ||
                  shared_pieces(c) / 2 * split_k_part_bytes(c) <= kPlan.row_scales - kPlan.rows);
    static_assert(!c.split_k.parts_in_ring || (c.split_k.warpgroups > 1 && c.cluster.k == 1 && parts_fit_ring(c)));

    /// Of a word for each of the tile's rows, that of a thread's first row, where its warpgroup's 64 begin at
    /// `first_row`.
    static DG_DEVICE uint32_t thread_row_word(uint32_t words, int32_t first_row) {
        return Fragment16x8::thread_word(words, first_row);
    }

    DG_DEVICE uint32_t staging(int warp) const { return base + kPlan.staging + warp * staging_bytes_per_warp(c); }
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
    /// A tile's D lies in the staging buffers; and it has been copied away (has_store_warp).
    DG_DEVICE uint32_t staged() const { return base + kPlan.barriers + 2 * c.stages * 8; }
    DG_DEVICE uint32_t drained() const { return staged() + 8; }
    /// Of a tile, which rows are padding; when they lie there, and when all math warps have read them (marks_padding).
    DG_DEVICE uint32_t padding() const { return base + kPlan.padding; }
    /// Largest magnitudes, where several warps have columns that share a scale.
    DG_DEVICE uint32_t exchange(int buffer = 0) const {
        return base + kPlan.exchange + buffer * maxima_bytes(c, fragment_d_cols(c));
    }
    DG_DEVICE uint32_t maxima_barrier(int buffer) const { return base + kPlan.run_barriers + buffer * 8; }
    DG_DEVICE uint32_t padding_known() const { return base + kPlan.padding_barriers; }
    DG_DEVICE uint32_t padding_read() const { return padding_known() + 8; }
    DG_DEVICE uint32_t full(int stage) const { return base + kPlan.barriers + stage * 8; }
    DG_DEVICE uint32_t empty(int stage) const { return base + kPlan.barriers + (c.stages + stage) * 8; }
    /// Of the warp that writes block scales: they come with the operands.
    DG_DEVICE uint32_t scales_full(int stage) const { return full(stage); }
};

}  // namespace deep_gemm
