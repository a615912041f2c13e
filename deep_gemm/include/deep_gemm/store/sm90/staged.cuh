// The end of a tile through the copy engine: math warps write D into staging buffers in shared memory, and copies drain
// them while the next tile is multiplied. (Plain stores would hold a warp until the L2 has taken them all.)
//
// Who issues the copies: a warp of its own where there is a next tile to multiply (has_store_warp; store_role.cuh),
// because issuing waits while the copy engine is busy; otherwise each math warp, which then waits for nobody.
#pragma once

#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/store/sm90/staging.cuh>

namespace deep_gemm {

/// A math warp's part where it issues the copies itself: each 16 rows through its own ring of staging buffers, a batch
/// of chunks at a time. It waits for no other warp.
template <Constant<GemmConfig> c>
class OwnStores {
public:
    DG_DEVICE explicit OwnStores(const Smem<c>& smem) : smem_(smem) {}

    DG_DEVICE void begin() const {}
    DG_DEVICE void end() const {}

    DG_DEVICE void write(const Results<c>& total, const Fragment<c>&, const Tile& tile, int32_t subtile,
                         const GemmParams& params) {
        constexpr StoreChunk kChunk = store_chunk(c);
        constexpr int32_t kBatch = kChunk.count < c.store.buffers ? kChunk.count : c.store.buffers,
                          kBatches = c.store.buffers / kBatch;
#pragma unroll
        for (int32_t first = 0; first < kChunk.count; first += kBatch) {
            const int32_t end = first + kBatch < kChunk.count ? first + kBatch : kChunk.count;
            const uint32_t buffers = smem_.staging(threadIdx.x / 32) + batch_ * (kBatch * kChunk.bytes());
            // The engine may still read an earlier batch from these buffers. (Always the same lane is elected: groups
            // of stores belong to a thread. Behind threadIdx.x % 32 == 0 ptxas makes a loop over lanes of each store.)
            if (ptx::elect_one()) ptx::wait_stores_read<kBatches - 1>();
            __syncwarp();
#pragma unroll
            for (int32_t chunk = first; chunk < end; ++chunk)
                stage_chunk<c>(buffers + (chunk - first) * kChunk.bytes(), total, chunk);
            ptx::fence_for_async_proxy();
            __syncwarp();
            if (ptx::elect_one()) {
#pragma unroll
                for (int32_t chunk = first; chunk < end; ++chunk)
                    copy_chunk<c>(buffers + (chunk - first) * kChunk.bytes(), tile, threadIdx.x / 32, subtile, chunk,
                                  params);
                ptx::commit_stores();
            }
            batch_ = batch_ + 1 == kBatches ? 0 : batch_ + 1;
        }
    }

    /// Shared memory must outlive the copies that read it.
    DG_DEVICE void finish() const {
        if (ptx::elect_one()) ptx::wait_stores<0>();
    }

private:
    Smem<c> smem_;
    int32_t batch_ = 0;
};

/// A math warp's part where another warp stores: all of its rows of a tile, when the tile before has been copied away.
template <Constant<GemmConfig> c>
class HandedStores {
public:
    DG_DEVICE explicit HandedStores(const Smem<c>& smem) : smem_(smem) {}

    /// Wait for the buffers.
    DG_DEVICE void begin() {
        ptx::barrier_wait(smem_.drained(), phase_ ^ 1);
        phase_ ^= 1;
    }

    DG_DEVICE void write(const Results<c>& total, const Fragment<c>&, const Tile&, int32_t subtile,
                         const GemmParams&) const {
        constexpr StoreChunk kChunk = store_chunk(c);
        __syncwarp();  // lanes may have waited, and read C, one by one
        const uint32_t buffers = smem_.staging(threadIdx.x / 32) + subtile * kChunk.count * kChunk.bytes();
#pragma unroll
        for (int32_t chunk = 0; chunk < kChunk.count; ++chunk)
            stage_chunk<c>(buffers + chunk * kChunk.bytes(), total, chunk);
    }

    /// All is written.
    DG_DEVICE void end() const {
        ptx::fence_for_async_proxy();
        __syncwarp();
        if (ptx::lane() == 0) ptx::barrier_arrive(smem_.staged());
    }

    DG_DEVICE void finish() const {}

private:
    Smem<c> smem_;
    uint32_t phase_ = 0;
};

}  // namespace deep_gemm
