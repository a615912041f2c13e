// Config and argument of the transposing kernel, and the launch numbers that host and device share.
#pragma once

#include <deep_gemm/params.cuh>

namespace deep_gemm {

inline constexpr int32_t kTransposeTile = 128;  // rows and columns of a tile, in bytes: whole cache lines on both sides
inline constexpr int32_t kTransposeThreads = 256;

struct TransposeConfig {
    bool aligned = true;     // source rows and groups start at multiples of 16 bytes
    bool k_grouped = false;  // each K group starts at a multiple of 128 in the target, whatever its place in the source
};

/// One-byte elements: source [groups][k][mn], MN contiguous -> target [groups][mn][k], K contiguous.
struct TransposeParams {
    const uint8_t* source;
    uint8_t* target;
    int64_t source_group_stride, source_stride;  // bytes between groups, between neighbours along K
    int64_t target_group_stride, target_stride;  // bytes between groups, between rows; multiples of 16
    int32_t mn, k;
    int32_t mn_tiles, k_tiles;
    KGroupLayout k_groups;  // k_grouped only
};

}  // namespace deep_gemm
