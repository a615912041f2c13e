// Store warps that add sums of groups along K up in registers, scaled, and store the tile from there.
#pragma once

#include <deep_gemm/mma/sm100/promote.cuh>
#include <deep_gemm/store/sm100/release_sums.cuh>
#include <deep_gemm/store/sm100/tile_stores.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm100 {

template <Constant<GemmConfig> c>
class PromoteRole {
public:
    DG_DEVICE PromoteRole(const Smem<c>& smem, const GemmParams& params, uint32_t tensor_memory)
        : smem_(smem),
          params_(params),
          sums_(tensor_memory + (tensor_warp() * kWarpRows << 16) + first_store_col<c>()),
          stores_(smem, params) {}

    DG_DEVICE void run() {
        TileScheduler<c> tiles(params_, smem_.groups());
        Tile tile;
        while (tiles.next(tile)) {
            tiles.place(tile);
            float totals[kCols];
#pragma unroll
            for (int32_t i = 0; i < kCols; ++i) totals[i] = 0;
#pragma unroll 1
            for (int32_t i = 0; i < tile.k_blocks; ++i, ring_.advance()) add_block(totals);
            store(totals, tile);
        }
        stores_.finish();
    }

private:
    static constexpr int32_t kCols = store_cols(c), kAtOnce = kCols % 32 == 0 && kCols < 128 ? 32 : 16;
    using Factors = typename SelectFactors<c>::Type;

    DG_DEVICE void add_block(float (&totals)[kCols]) {
        constexpr int32_t kGroups = promoted_groups(c);
        ptx::barrier_wait(smem_.scales_full(ring_.stage), ring_.phase);
#pragma unroll
        for (int32_t group = 0; group < kGroups; ++group) {
            const Factors factors(smem_, ring_.stage, group);
            if (!Factors::kReadsLate && group + 1 == kGroups) let_stage_go();
            add_group(totals, factors);
            if (Factors::kReadsLate && group + 1 == kGroups) let_stage_go();
        }
    }

    DG_DEVICE void add_group(float (&totals)[kCols], const Factors& factors) {
        ptx::barrier_wait(smem_.sums_full(accumulators_.stage), accumulators_.phase);
        ptx::tensor_fence_after_sync();
#pragma unroll
        for (int32_t col = 0; col < kCols; col += kAtOnce) {
            uint32_t sums[kAtOnce];
            ptx::load_tensor_memory(sums_ + accumulators_.stage * c.tile.cols + col, sums);
            ptx::wait_tensor_loads();
            if (col + kAtOnce == kCols) release_sums<c>(smem_.sums_empty(accumulators_.stage), position_);
            promote<c>(totals, sums, factors, col);
        }
        accumulators_.advance();
    }

    /// This warp has read the stage's scales.
    DG_DEVICE void let_stage_go() const {
        __syncwarp();
        if (ptx::lane() == 0) ptx::barrier_arrive(smem_.empty(ring_.stage));
    }

    DG_DEVICE void store(const float (&totals)[kCols], const Tile& tile) {
        stores_.begin();
        if constexpr (Piece<c>::kExchanges) {
            stores_.begin_runs();
#pragma unroll
            for (int32_t chunk = 0; chunk < warp_chunks(c); ++chunk) {
                PieceSums<c> sums;
                take(sums, totals, chunk);
                stores_.find(sums, tile, chunk);
            }
            stores_.wait_for_runs();
        }
        if constexpr (c.cluster.k > 1) {
#pragma unroll
            for (int32_t chunk = 0; chunk < warp_chunks(c); ++chunk) {
                if (stores_.owns(chunk)) continue;
                PieceSums<c> sums;
                take(sums, totals, chunk);
                stores_.send(sums, chunk);
            }
        }
#pragma unroll
        for (int32_t chunk = 0; chunk < warp_chunks(c); ++chunk) {
            if (c.cluster.k > 1 && !stores_.owns(chunk)) continue;
            PieceSums<c> sums;
            take(sums, totals, chunk);
            stores_.write(sums, tile, chunk);
        }
        stores_.end();
    }

    static DG_DEVICE void take(PieceSums<c>& sums, const float (&totals)[kCols], int32_t chunk) {
#pragma unroll
        for (int32_t i = 0; i < chunk_cols(c); ++i) sums[i] = totals[chunk * chunk_cols(c) + i];
    }

    const Smem<c>& smem_;
    const GemmParams& params_;
    uint32_t sums_;
    ClusterPosition<c> position_;
    Ring<c.stages> ring_;
    Ring<c.sm100.accumulators> accumulators_;
    TileStores<c> stores_;
};

}  // namespace deep_gemm::sm100
