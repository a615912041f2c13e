// The end of a tile through the copy engine: math warps write D into staging buffers in shared memory, and copies drain
// them while the next tile is multiplied. (Plain stores would hold a warp until the L2 has taken them all.)
//
// Who issues the copies: a warp of its own where there is a next tile to multiply (has_store_warp), because issuing
// waits while the copy engine is busy; otherwise each math warp, which then waits for nobody.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/store/direct.cuh>
#include <deep_gemm/store/shared_tile.cuh>
#include <deep_gemm/store/swizzle.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// Groups of 8 columns of the instruction's frame in one chunk.
constexpr int32_t col_groups(const GemmConfig& c) {
    return (c.swap_ab ? store_chunk(c).outer : store_chunk(c).inner) / Fragment16x8::kCols;
}

/// One chunk of this warp's 16 rows as FP32 or s32 into a staging buffer, in the swizzled layout that the store's box
/// has.
template <GemmConfig c>
DG_DEVICE void stage_32_bits(uint32_t buffer, const Results<c>& total, int32_t chunk) {
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kSpan = kChunk.swizzle_bytes(), kColGroups = col_groups(c);
    const int32_t lane = ptx::lane(), row = Fragment16x8::row(lane), col = Fragment16x8::col(lane);
    if constexpr (c.swap_ab) {
#pragma unroll
        for (int32_t j = 0; j < kColGroups; ++j) {
            const auto* values = total + Fragment16x8::pair(chunk * kColGroups + j, 0);
#pragma unroll
            for (int32_t h = 0; h < 2; ++h) {
                const int32_t offset =
                    (j * Fragment16x8::kCols + col) * kSpan + (row + h * Fragment16x8::kHalfRows) * 4;
                ptx::store_shared(buffer + swizzled<kSpan>(offset), values[2 * h]);
                ptx::store_shared(buffer + swizzled<kSpan>(offset + kSpan), values[2 * h + 1]);
            }
        }
    } else {
        // Four rows are written at a time, 32 bytes each. Swizzled, rows 2 i and 2 i + 1 would meet in the same banks:
        // odd rows write their column groups in another order.
        constexpr int32_t kOther = kColGroups == 4 ? 2 : 0;
        const bool odd = row % 2 != 0;
#pragma unroll
        for (int32_t j = 0; j < kColGroups; ++j) {
            const auto* mine = total + Fragment16x8::pair(chunk * kColGroups + j, 0);
            const auto* other = total + Fragment16x8::pair(chunk * kColGroups + (j ^ kOther), 0);
#pragma unroll
            for (int32_t h = 0; h < 2; ++h) {
                const uint32_t offset =
                    swizzled<kSpan>((row + h * Fragment16x8::kHalfRows) * kSpan + (j * Fragment16x8::kCols + col) * 4);
                ptx::store_shared_x2(buffer + (offset ^ (odd ? kOther * Fragment16x8::kCols * 4 : 0)),
                                     odd ? other[2 * h] : mine[2 * h], odd ? other[2 * h + 1] : mine[2 * h + 1]);
            }
        }
    }
}

/// The same as elements of 16 bits.
template <GemmConfig c>
DG_DEVICE void stage_16_bits(uint32_t buffer, const Results<c>& total, int32_t chunk) {
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kSpan = kChunk.swizzle_bytes(), kColGroups = col_groups(c);
    using Packed = Pack<c.output>;
    constexpr int32_t kGroupBytes = Fragment16x8::kCols * 2, kHalfRows = Fragment16x8::kHalfRows;
    const int32_t lane = threadIdx.x % 32;
    const auto [half, next, line] = Fragment16x8::matrix_line(lane);
#pragma unroll
    for (int32_t j = 0; j < kColGroups; j += 2) {
        const float* values = total + Fragment16x8::pair(chunk * kColGroups + j, 0);
        const uint32_t offset =
            c.swap_ab ? swizzled<kSpan>(((j + next) * Fragment16x8::kCols + line) * kSpan + half * kHalfRows * 2)
                      : swizzled<kSpan>((half * kHalfRows + line) * kSpan + (j + next) * kGroupBytes);
        const uint32_t first = Packed::pack(values[0], values[1]), second = Packed::pack(values[2], values[3]);
        if (j + 1 < kColGroups)
            ptx::store_matrix_x4<c.swap_ab>(buffer + offset, first, second, Packed::pack(values[4], values[5]),
                                            Packed::pack(values[6], values[7]));
        else
            ptx::store_matrix_x2<c.swap_ab>(buffer + offset, first, second);
    }
}

template <GemmConfig c>
DG_DEVICE void stage_chunk(uint32_t buffer, const Results<c>& total, int32_t chunk) {
    static_assert(!marks_padding(c) || bits(c.output) == 16, "FP32 of experts is stored from registers");
    if constexpr (bits(c.output) == 32)
        stage_32_bits<c>(buffer, total, chunk);
    else
        stage_16_bits<c>(buffer, total, chunk);
}

/// This warp's rows of padding become zero, where operands are not swapped (else rows are many: clear_staged). Most
/// warps have none, and must not pay for it.
template <GemmConfig c>
DG_DEVICE void clear_rows(Results<c>& total, const Tile& tile, int32_t subtile, const PaddingRows<c>& padding) {
    if constexpr (!marks_padding(c) || c.swap_ab) return;
    const uint32_t rows = padding.rows(row_in_tile<c>(threadIdx.x / 32, subtile)) & ((1u << Fragment16x8::kRows) - 1);
    if (rows == 0) return;
    const uint32_t mine = rows >> Fragment16x8::row(ptx::lane());
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; ++i)
        if (mine >> Fragment16x8::row_step(i) & 1) total[i] = 0;
}

/// Swapped operands: rows of padding of a staged chunk, which has all of the tile's rows, become zero. (Swizzling
/// leaves what is written in its row.)
template <GemmConfig c>
DG_DEVICE void clear_staged(uint32_t buffer, const PaddingRows<c>& padding) {
    if constexpr (!marks_padding(c) || !c.swap_ab) return;
    if (!padding.any()) return;
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kParts = kChunk.swizzle_bytes() / 16;
    static_assert(!c.swap_ab || kChunk.count == 1);
    __syncwarp();
#pragma unroll 1
    for (int32_t i = ptx::lane(); i < kChunk.outer * kParts; i += 32)
        if (padding.has(i / kParts)) ptx::store_shared_x4(buffer + i * 16, 0.0f, 0.0f, 0.0f, 0.0f);
    __syncwarp();  // the fence that follows is of all lanes
}

/// Where in D a chunk of 16 rows goes: one of those of math warp `warp`, of the `subtile`th 64 rows of its warpgroup.
struct ChunkPlace {
    int32_t x, y;
    bool stored;  // or it is padding, another expert's, another CTA's
};

template <GemmConfig c>
DG_DEVICE ChunkPlace place_chunk(const Tile& tile, int32_t warp, int32_t subtile, int32_t chunk) {
    constexpr StoreChunk kChunk = store_chunk(c);
    const int32_t row = tile.row + row_in_tile<c>(warp, subtile);
    const int32_t col = tile.col + chunk * kChunk.inner;
    const bool past = !c.swap_ab && (c.skips_padding || has_expert_runs(c)) && row >= tile.m_end;
    int32_t x = c.swap_ab ? row : col;
    if constexpr (c.heads.any()) {
        static_assert(c.heads.left % kChunk.inner == 0 && c.heads.right % kChunk.inner == 0, "a chunk is of one part");
        x = c.heads.place(x);
    }
    return {x, c.swap_ab ? tile.col : row, owns<c>(tile, warp, subtile) && !past};
}

/// Issue the copy of a staged chunk. One thread.
template <GemmConfig c>
DG_DEVICE void copy_chunk(uint32_t source, const Tile& tile, int32_t warp, int32_t subtile, int32_t chunk,
                          const GemmParams& params) {
    const ChunkPlace at = place_chunk<c>(tile, warp, subtile, chunk);
    if (!at.stored) return;
    if constexpr (adds_to_memory(c.store))
        ptx::add_box(&params.d, source, at.x, at.y, group_of_d<c>(tile));
    else
        ptx::store_box(&params.d, source, at.x, at.y, group_of_d<c>(tile));
}

/// A math warp's part where it issues the copies itself: each 16 rows through its own ring of staging buffers, a batch
/// of chunks at a time. It waits for no other warp.
template <GemmConfig c>
class OwnStores {
public:
    DG_DEVICE explicit OwnStores(const Smem<c>& smem) : smem_(smem) {}

    DG_DEVICE void begin() const {}
    DG_DEVICE void end() const {}

    DG_DEVICE void write(Results<c>& total, const Fragment<c>&, const Tile& tile, int32_t subtile,
                         const PaddingRows<c>& padding, const GemmParams& params) {
        constexpr StoreChunk kChunk = store_chunk(c);
        constexpr int32_t kBatch = kChunk.count < c.store.buffers ? kChunk.count : c.store.buffers,
                          kBatches = c.store.buffers / kBatch;
        clear_rows<c>(total, tile, subtile, padding);
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
            clear_staged<c>(buffers, padding);
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
template <GemmConfig c>
class HandedStores {
public:
    DG_DEVICE explicit HandedStores(const Smem<c>& smem) : smem_(smem) {}

    /// Wait for the buffers.
    DG_DEVICE void begin() {
        ptx::barrier_wait(smem_.drained(), phase_ ^ 1);
        phase_ ^= 1;
    }

    DG_DEVICE void write(Results<c>& total, const Fragment<c>&, const Tile& tile, int32_t subtile,
                         const PaddingRows<c>& padding, const GemmParams&) const {
        constexpr StoreChunk kChunk = store_chunk(c);
        __syncwarp();  // lanes may have waited, and read C, one by one
        const uint32_t buffers = smem_.staging(threadIdx.x / 32) + subtile * kChunk.count * kChunk.bytes();
        clear_rows<c>(total, tile, subtile, padding);
#pragma unroll
        for (int32_t chunk = 0; chunk < kChunk.count; ++chunk)
            stage_chunk<c>(buffers + chunk * kChunk.bytes(), total, chunk);
        clear_staged<c>(buffers, padding);
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

/// When the store role issues its copies. CTAs finish their tiles at about the same time. Copies of all of them at once
/// would hold up those of operands, most of all where D is read too (tma_add): each CTA spreads its own over most of
/// the time that its next tile takes, as far as the last one tells. (The first one, which waits for memory, tells
/// nothing.)
template <GemmConfig c>
class StorePace {
public:
    /// `tile` is staged; `more` says whether `after` follows it.
    DG_DEVICE void begin(const Tile& tile, bool more, const Tile& after) {
        if constexpr (!kPaced) return;
        const uint32_t now = clock();
        if (!first_ && tile.k_blocks > 0)
            block_cycles_ = min((now - begin_) / static_cast<uint32_t>(tile.k_blocks), kMostCycles);
        step_ = more ? block_cycles_ * after.k_blocks * 3 / (4 * kSteps) : 0;
        first_ = false;
        begin_ = now;
        due_ = 0;
    }

    /// Before each of the tile's kSteps shares.
    DG_DEVICE void wait() {
        if constexpr (!kPaced) return;
        while (clock() - begin_ < due_) ptx::sleep_nanoseconds(100);
        due_ += step_;
    }

private:
    /// Elsewhere there is no gain, and a loss where K is small (docs/performance.md).
    static constexpr bool kPaced = stores_late(c) || adds_to_memory(c.store);
    static constexpr uint32_t kSteps = c.sm90.math_warpgroups * 4;
    /// Twice what the tensor cores take for a K block: a CTA that was stopped in between, because another process had
    /// the GPU, must not wait as long again.
    static constexpr uint32_t kMostCycles = 2 * tensor_cycles(c);
    static DG_DEVICE uint32_t clock() { return static_cast<uint32_t>(ptx::clock_cycles()); }

    uint32_t begin_ = 0, block_cycles_ = 0, step_ = 0, due_ = 0;
    bool first_ = true;
};

/// Ask the L2 for what a math warp's rows of a tile are added to: memory gives a quarter less to additions that miss it
/// (benchmarks/micro/add.py). One thread.
template <GemmConfig c>
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
template <GemmConfig c>
DG_DEVICE void store_tiles(const Smem<c>& smem, const GemmParams& params) {
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kChunks = store_chunks_per_tile(c), kShares = c.sm90.math_warpgroups * 4;
    constexpr bool kAdds = adds_to_memory(c.store);
    const int32_t ahead = params.fetched_ahead;
    TileScheduler<c> tiles(params, smem.groups());
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
