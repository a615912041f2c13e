// Config and argument of the kernel that transposes two-byte elements, and the launch numbers that host and device
// share.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

inline constexpr int32_t kHalvesTile = 64;  // rows and columns of a tile: whole cache lines on both sides
inline constexpr int32_t kTransposeHalvesThreads = 256;

struct TransposeHalvesConfig {
    bool aligned = true;  // source lines and groups start at multiples of 16 bytes
};

/// Source [groups][k][mn] -> target [groups][mn][k], filled up with zeros to whole tiles of K.
struct TransposeHalvesParams {
    const uint8_t* source;
    uint8_t* target;
    int64_t source_group_stride, source_stride;  // bytes between groups, between neighbours along K
    int64_t target_group_stride, target_stride;  // bytes between groups, between rows; multiples of a tile's line
    int32_t mn, k;                               // elements
    int32_t mn_tiles, k_tiles;
};

}  // namespace deep_gemm
