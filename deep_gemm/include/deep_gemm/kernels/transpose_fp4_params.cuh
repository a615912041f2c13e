// Config and argument of the kernel that transposes FP4 codes, and the launch numbers that host and device share.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

inline constexpr int32_t kFp4Tile = 128, kFp4TileBytes = kFp4Tile / 2;  // rows and columns of a tile, in codes
inline constexpr int32_t kTransposeFp4Threads = 256;

struct TransposeFp4Config {
    bool aligned = true;  // source lines and groups start at multiples of 16 bytes
};

/// Two codes a byte, the first one in the low half: source [groups][k][mn / 2] -> target [groups][mn][k / 2], filled up
/// with zeros to whole tiles of K.
struct TransposeFp4Params {
    const uint8_t* source;
    uint8_t* target;
    int64_t source_group_stride, source_stride;  // bytes between groups, between neighbours along K
    int64_t target_group_stride, target_stride;  // bytes between groups, between rows; multiples of kFp4TileBytes
    int32_t mn_bytes, k;
    int32_t mn_tiles, k_tiles;
};

}  // namespace deep_gemm
