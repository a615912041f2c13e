// What becomes of the sums of a tile: its warps or warpgroups, then the CTAs of its cluster, add theirs up in order.
#pragma once

#include <deep_gemm/kernels/tf32_hc_prenorm_gemm_params.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm {

/// Which of the tiles a cluster has, and what of K.
struct PrenormTile {
    int32_t first_row, first_col, split;
    int32_t begin, end;  // blocks of K

    /// Blocks of K are dealt evenly, those that are left over to the first splits.
    static DG_DEVICE PrenormTile of(int32_t cluster, int32_t rows, int32_t cols, const PrenormParams& p) {
        PrenormTile tile;
        tile.split = cluster % p.splits;
        const int32_t block = cluster / p.splits, blocks = p.k / kPrenormBlockK, each = blocks / p.splits,
                      more = blocks % p.splits;
        tile.first_row = block / p.col_blocks * rows, tile.first_col = block % p.col_blocks * cols;
        tile.begin = tile.split * each + min(tile.split, more);
        tile.end = tile.begin + each + (tile.split < more ? 1 : 0);
        return tile;
    }
};

/// What a CTA of a cluster gets: its share of the sums of all, and the barrier that counts their bytes.
template <int32_t kRows, int32_t kCols, int32_t kCluster>
struct PrenormShare {
    static constexpr int32_t kElements = kRows * prenorm_sum_stride(kCols),
                             kEach = prenorm_share(kRows, kCols, kCluster);

    /// By all threads, before they part: none may write to a CTA that has not begun.
    DG_DEVICE void begin(int32_t rank) const {
        if constexpr (kCluster > 1) {
            if (threadIdx.x == 0) {
                ptx::barrier_init(barrier(), 1), ptx::fence_barrier_init();
                ptx::barrier_arrive_expect(barrier(), kCluster * size(rank) * 4);
            }
            __syncwarp();
            ptx::cluster_arrive();
        }
    }

    static DG_DEVICE int32_t size(int32_t rank) { return max(min(kEach, kElements - rank * kEach), 0); }
    DG_DEVICE uint32_t barrier() const { return base; }
    DG_DEVICE uint32_t sum(int32_t of_rank, int32_t i) const { return base + 16 + (of_rank * kEach + i) * 4; }

    uint32_t base;  // in shared memory
};

/// Of `kParts` sums a CTA: [parts][rows][columns and the squares], FP32. Threads of all CTAs of a cluster call it when
/// theirs are written; of a cluster's, each CTA is sent its share and writes it.
template <int32_t kRows, int32_t kCols, int32_t kParts, int32_t kCluster, int32_t kThreads>
DG_DEVICE void finish_prenorm(const float* sums, const PrenormShare<kRows, kCols, kCluster>& share, int32_t rank,
                              const PrenormTile& tile, const PrenormParams& p) {
    constexpr int32_t kStride = prenorm_sum_stride(kCols), kElements = kRows * kStride;
    __syncthreads();
    const auto thread = static_cast<int32_t>(threadIdx.x);
    const auto of_cta = [&](int32_t i) {
        float sum = 0.0f;
#pragma unroll
        for (int32_t part = 0; part < kParts; ++part) sum += sums[part * kElements + i];
        return sum;
    };
    const auto store = [&](int32_t i, float sum) {
        const int32_t row = tile.first_row + i / kStride, col = i % kStride;
        if (row >= p.m) return;
        if (col < kCols && tile.first_col + col < p.n)
            p.d[tile.split * p.d_split_stride + row * p.d_stride + tile.first_col + col] = sum;
        if (col == kCols && tile.first_col == 0) p.squares[tile.split * p.squares_split_stride + row] = sum;
    };
    if constexpr (kCluster == 1) {
        for (int32_t i = thread; i < kElements; i += kThreads) store(i, of_cta(i));
    } else {
        ptx::cluster_wait();
        for (int32_t i = thread; i < kElements; i += kThreads) {
            const auto to = static_cast<uint32_t>(i / share.kEach);
            ptx::store_cluster_async(ptx::map_to_cta(share.sum(rank, i % share.kEach), to), of_cta(i),
                                     ptx::map_to_cta(share.barrier(), to));
        }
        for (int32_t i = thread; i < share.size(rank); i += kThreads) {
            ptx::barrier_wait(share.barrier(), 0);
            float sum = 0.0f;
#pragma unroll
            for (int32_t other = 0; other < kCluster; ++other) sum += ptx::load_shared(share.sum(other, i));
            store(rank * share.kEach + i, sum);
        }
        // A CTA that has nothing to write is sent nothing, and may leave.
    }
}

}  // namespace deep_gemm
