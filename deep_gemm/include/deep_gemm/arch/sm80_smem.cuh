// Addresses of the shared-memory plan, for one CTA.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/group_table.cuh>
#include <deep_gemm/tile/k_groups.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm::sm80 {

template <GemmConfig c>
struct Smem {
    static constexpr SmemPlan kPlan = plan_smem(c);

    uint32_t base;

    DG_DEVICE explicit Smem(const void* dynamic)
        : base((ptx::shared_address(dynamic) + kSmemAlignment - 1) & ~(kSmemAlignment - 1)) {}

    DG_DEVICE uint32_t rows(int stage) const { return base + kPlan.rows + stage * kPlan.rows_bytes; }
    DG_DEVICE uint32_t cols(int stage) const { return base + kPlan.cols + stage * kPlan.cols_bytes; }
    DG_DEVICE uint32_t row_scales(int stage) const { return base + kPlan.row_scales + stage * kPlan.row_scale_bytes; }
    DG_DEVICE uint32_t col_scales(int stage) const { return base + kPlan.col_scales + stage * kPlan.col_scale_bytes; }
    DG_DEVICE uint32_t zeros(int stage) const { return base + kPlan.zeros + stage * kPlan.zero_bytes; }
    /// A stage has been copied: each thread that copies arrives when its copies have come, and the first when it has
    /// written what tile it is.
    DG_DEVICE uint32_t full(int stage) const { return base + kPlan.barriers + stage * kBarrierBytes; }
    /// It has been read: each warp that multiplies arrives.
    DG_DEVICE uint32_t empty(int stage) const { return full(c.stages + stage); }

    /// By one thread, ahead of a barrier of the CTA.
    DG_DEVICE void init_barriers() const {
#pragma unroll
        for (int32_t i = 0; i < c.stages; ++i) {
            ptx::barrier_init(full(i), copy_threads(c) + 1);
            ptx::barrier_init(empty(i), warps(c));
        }
    }
    DG_DEVICE uint32_t parts() const { return base + kPlan.parts; }
    DG_DEVICE auto groups() const {
        if constexpr (c.grouping == Grouping::k_contiguous)
            return KGroupTable<c>{base + kPlan.groups};
        else
            return GroupTable<c>{base + kPlan.groups};
    }

    /// The tile whose first K block a stage holds. Fewer than no K blocks: there are no more tiles.
    DG_DEVICE void write_tile(int stage, const Tile& tile) const {
        const uint32_t slot = base + kPlan.tiles + stage * kTileBytes;
        ptx::store_shared_int_x4(slot, tile.row, tile.col, tile.group, tile.m_end);
        ptx::store_shared_int_x4(slot + 16, tile.k_block, tile.k_blocks, 0, 0);
    }
    DG_DEVICE Tile read_tile(int stage) const {
        const uint32_t slot = base + kPlan.tiles + stage * kTileBytes;
        const int4 place = ptx::load_shared_int_x4(slot), blocks = ptx::load_shared_int_x4(slot + 16);
        return {place.x, place.y, place.z, blocks.x, blocks.y, place.w, 0};
    }
};

}  // namespace deep_gemm::sm80
