// Config and argument of the kernel that adds up rows of integers, and the launch numbers that host and device share.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

inline constexpr int32_t kRowSumsWarps = 8, kRowSumsThreads = kRowSumsWarps * 32;
inline constexpr int32_t kRowSumsPiece = 16;                 // bytes that a lane reads at once, of one group of scales
inline constexpr int32_t kRowSumsStep = 32 * kRowSumsPiece;  // of K that a warp reads at once
inline constexpr int32_t kRowSumsAhead = 4;                  // pieces that a lane asks for before it adds up the first
inline constexpr int32_t kRowSumsScaleK = 128;               // of K that shares a scale

struct RowSumsConfig {
    bool scaled = false;  // each group of K times its scale, in FP32
};

/// values [groups][rows][k] -> sums [groups][rows], s32, or FP32 where they are scaled.
struct RowSumsParams {
    const int8_t* values;  // at a multiple of 16 bytes
    void* sums;
    const float* scales;               // where they are scaled: one for each kRowSumsScaleK of K
    int64_t group_stride, row_stride;  // of values, in bytes: multiples of 16
    int64_t scale_group_stride, scale_row_stride, scale_k_stride;  // elements
    int32_t rows_per_scale;
    uint32_t rows, all_rows;  // of a group, of all
    int32_t k;
};

}  // namespace deep_gemm
