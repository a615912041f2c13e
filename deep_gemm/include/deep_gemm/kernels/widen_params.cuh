// Argument of the kernel that converts E4M3 ahead of a product, and the launch numbers that host and device share.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

inline constexpr int32_t kWidenThreads = 128;
inline constexpr int32_t kWidenUnitK = 16;  // that two threads convert
inline constexpr int32_t kWidenUnits = 4;   // of a thread, one after the other along K
/// Of K, in a block.
inline constexpr int32_t kWidenBlockK = kWidenThreads / 2 * kWidenUnitK * kWidenUnits;

/// source [groups][rows] of `k` E4M3, in lines that start at multiples of 16 bytes -> target [groups][rows] of as many
/// FP16, in the order in which threads convert E4M3 themselves.
struct WidenParams {
    const uint8_t* source;
    uint8_t* target;
    const int32_t* row_counts;                   // of the groups' rows, those that are converted; null: all
    int64_t source_group_stride, source_stride;  // bytes between groups, between rows
    int64_t target_stride;                       // likewise; groups follow each other
    int32_t k;                                   // a multiple of kWidenUnitK
    uint32_t row_blocks, rows;                   // blocks of a row, rows of a group
};

}  // namespace deep_gemm
