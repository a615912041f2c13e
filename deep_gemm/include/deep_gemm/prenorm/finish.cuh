// What becomes of the sums of a tile: its warps or warpgroups, then the CTAs of its cluster, add theirs up in order.
#pragma once

#include <deep_gemm/kernels/tf32_hc_prenorm_gemm_params.cuh>
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

/// Of `kParts` sums a CTA: [parts][rows][columns and the squares], FP32. Threads of all CTAs of a cluster call it when
/// theirs are written; of a cluster's, each CTA writes its share.
template <int32_t kRows, int32_t kCols, int32_t kParts, int32_t kCluster, int32_t kThreads>
DG_DEVICE void finish_prenorm(float* sums, int32_t rank, const PrenormTile& tile, const PrenormParams& p) {
    constexpr int32_t kStride = prenorm_sum_stride(kCols), kElements = kRows * kStride;
    __syncthreads();
    const auto of_cta = [&](int32_t i) {
        float sum = 0.0f;
#pragma unroll
        for (int32_t part = 0; part < kParts; ++part) sum += sums[part * kElements + i];
        return sum;
    };
    if constexpr (kCluster > 1) {
        for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kElements; i += kThreads) sums[i] = of_cta(i);
        ptx::cluster_arrive_release(), ptx::cluster_wait();
    }
    for (int32_t i = rank * kThreads + static_cast<int32_t>(threadIdx.x); i < kElements; i += kCluster * kThreads) {
        const int32_t row = tile.first_row + i / kStride, col = i % kStride;
        const bool squares = col == kCols;
        if (row >= p.m || (squares ? tile.first_col > 0 : tile.first_col + col >= p.n)) continue;
        float sum = 0.0f;
        if constexpr (kCluster == 1) {
            sum = of_cta(i);
        } else {
#pragma unroll
            for (int32_t other = 0; other < kCluster; ++other)
                sum += ptx::load_cluster(ptx::map_to_cta(ptx::shared_address(sums + i), other));
        }
        if (squares)
            p.squares[tile.split * p.squares_split_stride + row] = sum;
        else
            p.d[tile.split * p.d_split_stride + row * p.d_stride + tile.first_col + col] = sum;
    }
    // None may leave while others read its sums.
    if constexpr (kCluster > 1) ptx::cluster_arrive_release(), ptx::cluster_wait();
}

}  // namespace deep_gemm
