// Config and argument of the kernel that copies lines to aligned places, and the launch numbers that host and device
// share.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

inline constexpr int32_t kCopyLinesWarps = 8, kCopyLinesThreads = kCopyLinesWarps * 32;
inline constexpr int32_t kCopyLinesPiece = 512;  // bytes that a warp writes: 16 a lane
inline constexpr int32_t kMaxUnitBytes = 8;

struct CopyLinesConfig {
    int32_t unit_bytes = 2;  // 1, 2, 4 or 8: divides all addresses and the length of a line
};

/// source [groups][lines] of `line_bytes` each -> target [groups][lines], filled up with zeros to 16 bytes.
struct CopyLinesParams {
    const uint8_t* source;
    uint8_t* target;
    int64_t source_group_stride, source_stride;  // bytes between groups, between lines
    int64_t target_stride;                       // likewise, a multiple of 16; groups follow each other
    int64_t line_bytes;
    uint32_t pieces, lines;  // of a line, of a group
    uint32_t warps;          // pieces of all
};

}  // namespace deep_gemm
