// The warp that copies staged tiles away where math warps do not, and when it does so.
#pragma once

#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/store/sm90/staging.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// When the store role issues its copies. CTAs finish their tiles at about the same time. Copies of all of them at once
/// would hold up those of operands, most of all where D is read too (tma_add): each CTA spreads its own over most of
/// the time that its next tile takes, as far as the last one tells. (The first one, which waits for memory, tells
/// nothing.)
template <Constant<GemmConfig> c>
class StorePace {
public:
    /// `tile` is staged; `more` says whether `after` follows it.
    DG_DEVICE void begin(const Tile& tile, bool more, const Tile& after) {
        if constexpr (!kPaced) return;
        const uint32_t now = clock();
        if (!first_ && tile.k_blocks > 0)
            block_cycles_ = min((now - begin_) / static_cast<uint32_t>(tile.k_blocks), kMaxCycles);
        step_ = more ? block_cycles_ * after.k_blocks * 3 / (4 * kSteps) : 0;
        first_ = false;
        begin_ = now;
        due_ = 0;
    }

    /// Before each of the tile's kSteps shares.
    DG_DEVICE void wait() {
        if constexpr (kPaced) {
            while (clock() - begin_ < due_) ptx::sleep_nanoseconds(100);
            due_ += step_;
        }
    }

private:
    /// Elsewhere there is no gain, and a loss where K is small (docs/notes/tried.md).
    static constexpr bool kPaced = stores_late(c) || adds_to_memory(c.store);
    static constexpr uint32_t kSteps = c.sm90.math_warpgroups * 4;
    /// Twice what the tensor cores take for a K block: a CTA that was stopped in between, because another process had
    /// the GPU, must not wait as long again.
    static constexpr uint32_t kMaxCycles = 2 * tensor_cycles(c);
    static DG_DEVICE uint32_t clock() { return static_cast<uint32_t>(ptx::clock_cycles()); }

    uint32_t begin_ = 0, block_cycles_ = 0, step_ = 0, due_ = 0;
    bool first_ = true;
};

/// Ask the L2 for what a math warp's rows of a tile are added to: memory gives a quarter less to additions that miss it
/// (benchmarks/micro/add.py). One thread.
template <Constant<GemmConfig> c>
DG_DEVICE void fetch_rows(const Tile& tile, int32_t warp, const GemmParams& params) {
    constexpr StoreChunk kChunk = store_chunk(c);
    // The store role has few registers: written out, nine chunks spilled (128x144, BF16).
    constexpr int32_t kChunks = store_chunks_per_tile(c), kAtOnce = kChunks <= 4 ? kChunks : 1;
#pragma unroll kAtOnce
    for (int32_t i = 0; i < kChunks; ++i) {
        const ChunkPlace at = place_chunk<c>(tile, warp, i / kChunk.count, i % kChunk.count);
        if (at.stored) ptx::prefetch_box(&params.d, at.x, at.y, group_of_d<c>(tile));
    }
}

/// The store role: one thread. Where D is added to, the L2 is asked for each math warp's rows some such shares before.
template <Constant<GemmConfig> c, typename Tiles = TileScheduler<c>>
DG_DEVICE void store_tiles(const Smem<c>& smem, const GemmParams& params) {
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kChunks = store_chunks_per_tile(c), kShares = c.sm90.math_warpgroups * 4;
    constexpr bool kAdds = adds_to_memory(c.store);
    const int32_t ahead = params.fetched_ahead;
    Tiles tiles(params, smem.groups());
    StorePace<c> pace;
    const auto find = [&](Tile& tile) {
        if (!tiles.next(tile)) return false;
        tiles.place(tile);
        return true;
    };
    Tile tile = {}, after = {};
    bool more = find(tile);
    if (kAdds && more)
        for (int32_t warp = 0; warp < ahead; ++warp) fetch_rows<c>(tile, warp, params);
    for (uint32_t phase = 0; more; phase ^= 1, tile = after) {
        more = find(after);
        ptx::barrier_wait(smem.staged(), phase);
        pace.begin(tile, more, after);
#pragma unroll 1
        for (int32_t warp = 0; warp < kShares; ++warp) {
            pace.wait();
            if constexpr (kAdds) {
                if (warp + ahead < kShares)
                    fetch_rows<c>(tile, warp + ahead, params);
                else if (more)
                    fetch_rows<c>(after, warp + ahead - kShares, params);
            }
#pragma unroll
            for (int32_t i = 0; i < kChunks; ++i)
                copy_chunk<c>(smem.staging(warp) + i * kChunk.bytes(), tile, warp, i / kChunk.count, i % kChunk.count,
                              params);
        }
        ptx::commit_stores();
        ptx::wait_stores_read<0>();
        ptx::barrier_arrive(smem.drained());
    }
    // Shared memory must outlive the copies that read it.
    ptx::wait_stores<0>();
}

}  // namespace deep_gemm
