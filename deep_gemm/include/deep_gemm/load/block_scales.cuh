// The role that writes block scales into the ring.
#pragma once

#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/scale/runs.cuh>
#include <deep_gemm/tile/ring.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// A warp reads 32 K blocks' scales at once, then each lane in turn hands over its own when the stage is free: one
/// value for each run of rows or columns, so that the math warps need not know where 128-blocks end.
template <Constant<GemmConfig> c, typename Tiles = TileScheduler<c>, typename Smem>
DG_DEVICE void load_block_scales(const Smem& smem, const GemmParams& params) {
    constexpr bool kOnRows = c.row_scales().per_block();
    constexpr int32_t kParts = scale_parts(c), kExtent = scale_extent(c), kBlocks = scale_blocks(kExtent),
                      kRuns = block_scale_values(c) / kParts;
    const int32_t lane = threadIdx.x % 32;
    const int32_t extent = (kOnRows == c.swap_ab) ? extent_n<c>(params) : extent_m<c>(params);
    const int32_t last_block = (extent / kParts - 1) / kScaleBlockRows;
    Tiles tiles(params, smem.groups());
    Ring<c.stages> ring;
    Tile tile;
    while (tiles.next(tile)) {
        tiles.place(tile);
        const int32_t start = (kOnRows ? tile.row : tile.col) / kParts, first_block = start / kScaleBlockRows;
        const float* scales = params.block_scales + tile.group * params.block_scale_group_stride +
                              tile.k_block * params.block_scale_k_stride;
        for (int32_t batch = 0; batch < tile.k_blocks; batch += 32) {
            float values[kParts * kBlocks];
#pragma unroll
            for (int32_t i = 0; i < kParts * kBlocks; ++i) {
                // Blocks past the last one scale columns that are never stored; any finite value serves.
                int32_t block = min(first_block + i % kBlocks, last_block);
                if (i >= kBlocks) block += extent / kParts / kScaleBlockRows;
                values[i] = batch + lane < tile.k_blocks ? __ldg(scales + block * params.block_scale_stride +
                                                                 (batch + lane) * params.block_scale_k_stride)
                                                         : 0.0f;
            }
            const int32_t count = min(32, tile.k_blocks - batch);
#pragma unroll 1
            for (int32_t turn = 0; turn < count; ++turn, ring.advance()) {
                ptx::barrier_wait(smem.empty(ring.stage), ring.phase ^ 1);
                // Before the lane that fills the stage: one still waiting here would miss the phase that it lets end.
                __syncwarp();
                if (lane == turn) {
#pragma unroll
                    for (int32_t run = 0; run < block_scale_values(c); ++run) {
                        const int32_t block =
                            (start % kScaleBlockRows + run % kRuns * scale_run(kExtent)) / kScaleBlockRows;
                        const float* const of_part = values + run / kRuns * kBlocks;
                        float value = of_part[0];
#pragma unroll
                        for (int32_t i = 1; i < kBlocks; ++i) value = block >= i ? of_part[i] : value;
                        ptx::store_shared(smem.block_scales(ring.stage) + run * 4, value);
                    }
                    ptx::barrier_arrive(smem.scales_full(ring.stage));
                }
            }
        }
    }
}

}  // namespace deep_gemm
