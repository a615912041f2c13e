// Config and argument of the pre-norm product, and the plan that host and device share.
//
// d[m, n] = sum over k of a[m, k] * tf32(b[n, k]), and squares[m] = sum over k of a[m, k]^2. A is BF16, B FP32 rounded
// to nearest TF32.
#pragma once

#include <deep_gemm/params.cuh>

namespace deep_gemm {

inline constexpr int32_t kPrenormWarps = 8;    // of a CTA, mostly
inline constexpr int32_t kPrenormBlockK = 64;  // that splits are multiples of
inline constexpr int32_t kPrenormChunkK = 32;  // of a warp at once
inline constexpr int32_t kPrenormMaxCols = 32, kPrenormMaxN = 128;

/// FP32 of a row's sums, the squares' last.
constexpr int32_t prenorm_sum_stride(int32_t cols) { return cols + 1; }
/// Sums of a tile that a CTA of a cluster adds up for all, and the bytes that it is sent, after a barrier.
constexpr int32_t prenorm_share(int32_t rows, int32_t cols, int32_t cluster) {
    return ceil_div(rows * prenorm_sum_stride(cols), cluster);
}
constexpr int32_t prenorm_share_bytes(int32_t rows, int32_t cols, int32_t cluster) {
    return cluster == 1 ? 0 : 16 + cluster * prenorm_share(rows, cols, cluster) * 4;
}

struct PrenormConfig {
    int32_t rows = 16;              // of a CTA
    int32_t cols = 8;               // a multiple of 8: N, or as many of it as a CTA has registers for
    int32_t cluster = 1;            // CTAs that divide K among themselves
    int32_t warps = kPrenormWarps;  // that divide a CTA's part of it further
    int32_t stages = 2;             // of a warp's ring
    bool b_in_ring = false;         // else threads load a chunk of B ahead into registers

    constexpr bool operator==(const PrenormConfig&) const = default;
    constexpr int32_t threads() const { return warps * 32; }
    constexpr int32_t a_bytes() const { return rows * kPrenormChunkK * 2; }  // of a stage
    constexpr int32_t stage_bytes() const { return a_bytes() + (b_in_ring ? cols * kPrenormChunkK * 4 : 0); }
    constexpr int32_t ring_bytes() const { return warps * stages * stage_bytes(); }
    constexpr int32_t sums_bytes() const { return warps * rows * prenorm_sum_stride(cols) * 4; }
    /// Sums of warps take the place of the rings; what other CTAs send may come while they are read.
    constexpr int32_t share_place() const {
        return align_up(ring_bytes() > sums_bytes() ? ring_bytes() : sums_bytes(), 16);
    }
    constexpr int32_t smem_bytes() const { return share_place() + prenorm_share_bytes(rows, cols, cluster); }
};

struct PrenormParams {
    const uint8_t* a;
    const float* b;
    float *d, *squares;
    int64_t a_stride_bytes, b_stride;                        // between rows
    int64_t d_stride, d_split_stride, squares_split_stride;  // elements
    int32_t m, n, k, splits;
    int32_t col_blocks;          // of a kernel's columns, which N is divided into
    TensorMap a_boxes, b_boxes;  // where a copy engine brings them
};

}  // namespace deep_gemm
