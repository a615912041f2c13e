// Config and argument of the kernel that adds up rows of integers, and the launch numbers that host and device share.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

inline constexpr int32_t kRowSumsWarps = 8, kRowSumsThreads = kRowSumsWarps * 32;
inline constexpr int32_t kRowSumsStep = 128;  // of K that a warp reads at once: 4 bytes a lane, a group of scales

struct RowSumsConfig {
    bool scaled = false;  // each group of K times its scale, in FP32
};

/// values [groups][rows][k] -> sums [groups][rows], s32, or FP32 where they are scaled.
struct RowSumsParams {
    const int8_t* values;
    void* sums;
    const float* scales;               // where they are scaled: one for each kRowSumsStep of K
    int64_t group_stride, row_stride;  // of values, in bytes: multiples of 16
    int64_t scale_group_stride, scale_row_stride, scale_k_stride;  // elements
    int32_t rows_per_scale;
    uint32_t rows, all_rows;  // of a group, of all
    int32_t k;
};

}  // namespace deep_gemm
