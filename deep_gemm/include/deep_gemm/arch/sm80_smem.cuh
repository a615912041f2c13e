// Addresses of the shared-memory plan, for one CTA.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>
#include <deep_gemm/arch/stage_smem.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm::sm80 {

template <Constant<GemmConfig> c>
struct Smem : StageSmem<c, plan_smem(c), smem_alignment(c)> {
    using Base = typename Smem::StageSmem;
    using Base::Base, Base::base, Base::kPlan;

    /// A stage has been copied.
    DG_DEVICE uint32_t full(int stage) const { return base + kPlan.barriers + stage * kBarrierBytes; }
    /// It has been read: each warp that multiplies arrives.
    DG_DEVICE uint32_t empty(int stage) const { return full(c.stages + stage); }

    /// By one thread, ahead of a barrier of the CTA.
    DG_DEVICE void init_barriers() const {
#pragma unroll
        for (int32_t i = 0; i < c.stages; ++i) {
            ptx::barrier_init(full(i), full_arrivals(c));
            ptx::barrier_init(empty(i), warps(c));
        }
        if constexpr (c.cluster.k > 1)
            for (int32_t warp = 0; warp < storing_warps(c); ++warp) {
                ptx::barrier_init(cta_parts_barrier(warp), 1);
                ptx::barrier_arrive_expect(cta_parts_barrier(warp), (c.cluster.k - 1) * cta_part_bytes(c));
            }
        if constexpr (c.sm80.copy_engine || c.cluster.k > 1) ptx::fence_barrier_init();
    }

    /// Largest magnitudes, where several warps have columns that share a scale.
    DG_DEVICE uint32_t exchange() const { return base + kPlan.exchange; }
    DG_DEVICE uint32_t parts() const { return base + kPlan.parts; }
    /// What a warp of the first CTA is sent by that of another one; its barrier serves once.
    DG_DEVICE uint32_t cta_part(int warp, int sender) const {
        return base + kPlan.cta_parts + (warp * (c.cluster.k - 1) + sender - 1) * cta_part_bytes(c);
    }
    DG_DEVICE uint32_t cta_parts_barrier(int warp) const { return base + kPlan.cta_barriers + warp * kBarrierBytes; }

    /// The tile whose first K block a stage holds (or any, see tile_in_each_stage). Fewer than no K blocks: there are
    /// no more tiles.
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
