// Store warps that read complete sums from tensor memory. A thread has one row of the instruction's frame.
#pragma once

#include <deep_gemm/ptx/tcgen05.cuh>
#include <deep_gemm/store/sm100/release_sums.cuh>
#include <deep_gemm/store/sm100/tile_stores.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm100 {

/// The store role: four warps of each CTA.
template <Constant<GemmConfig> c>
class StoreRole {
public:
    DG_DEVICE StoreRole(const Smem<c>& smem, const GemmParams& params, uint32_t tensor_memory)
        : smem_(smem),
          params_(params),
          sums_(tensor_memory + (tensor_warp() * kWarpRows << 16)),
          stores_(smem, params) {}

    DG_DEVICE void run() {
        TileScheduler<c> tiles(params_, smem_.groups());
        Tile tile;
        while (tiles.next(tile)) {
            tiles.place(tile);
            store(tile);
        }
        stores_.finish();
    }

private:
    DG_DEVICE void store(const Tile& tile) {
        const bool empty = kMayBeEmpty && tile.k_blocks == 0;  // nothing was multiplied, D is C or zero
        if (!empty) {
            ptx::barrier_wait(smem_.sums_full(accumulators_.stage), accumulators_.phase);
            ptx::tensor_fence_after_sync();
        }
        stores_.begin();
        if constexpr (c.cluster.k > 1) send_parts(empty);
        if constexpr (Piece<c>::kExchanges) find_runs(tile, empty);
#pragma unroll 1
        for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
            if (c.cluster.k > 1 && !stores_.owns(chunk)) continue;
            PieceSums<c> sums;
            load(sums, chunk, empty);
            if (c.cluster.k == 1 && !empty && chunk + 1 == kChunks) release();
            stores_.write(sums, tile, chunk);
        }
        stores_.end();
    }

    DG_DEVICE void find_runs(const Tile& tile, bool empty) const {
        stores_.begin_runs();
#pragma unroll 1
        for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
            PieceSums<c> sums;
            load(sums, chunk, empty);
            stores_.find(sums, tile, chunk);
        }
        stores_.wait_for_runs();
    }

    /// To CTAs that own them. (No next tile waits for the accumulator.)
    DG_DEVICE void send_parts(bool empty) const {
#pragma unroll 1
        for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
            if (stores_.owns(chunk)) continue;
            PieceSums<c> sums;
            load(sums, chunk, empty);
            stores_.send(sums, chunk);
        }
    }

    DG_DEVICE void load(PieceSums<c>& sums, int32_t chunk, bool empty) const {
        if (kMayBeEmpty && empty) {
#pragma unroll
            for (auto& sum : sums) sum = 0;
            return;
        }
        constexpr int32_t kCols = Piece<c>::kCols, kAtOnce = kCols % 32 == 0 ? 32 : 16;
        const uint32_t address = sums_ + accumulators_.stage * c.tile.cols + chunk * kCols;
        uint32_t words[kCols / kAtOnce][kAtOnce];
#pragma unroll
        for (int32_t i = 0; i < kCols / kAtOnce; ++i) ptx::load_tensor_memory(address + i * kAtOnce, words[i]);
        ptx::wait_tensor_loads();
#pragma unroll
        for (int32_t i = 0; i < kCols; ++i) sums[i] = from_word<c.sum()>(words[i / kAtOnce][i % kAtOnce]);
    }

    DG_DEVICE void release() {
        release_sums<c>(smem_.sums_empty(accumulators_.stage), position_);
        accumulators_.advance();
    }

    static constexpr int32_t kChunks = warp_chunks(c);
    /// Groups without K, blocks of nothing but padding, CTAs that find no K left to share.
    static constexpr bool kMayBeEmpty = divides_k(c.grouping) || c.grouping == Grouping::m_psum || c.cluster.k > 1;

    const Smem<c>& smem_;
    const GemmParams& params_;
    uint32_t sums_;
    ClusterPosition<c> position_;
    Ring<c.sm100.accumulators> accumulators_;
    TileStores<c> stores_;
};

}  // namespace deep_gemm::sm100
