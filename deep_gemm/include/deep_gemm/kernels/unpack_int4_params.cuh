// Argument of the kernel that unpacks integers of four bits, and the launch numbers that host and device share.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

inline constexpr int32_t kUnpackInt4Threads = 128;
inline constexpr int32_t kUnpackInt4Bytes = 4;       // that a thread reads; it writes twice as many
inline constexpr int32_t kInterleaveInt4Bytes = 16;  // that it reads and writes, where they stay of four bits

/// source [groups][rows] of `row_bytes`, two integers a byte, the first in the low nibble -> target [groups][rows] of
/// twice or as many, filled up with zeros to what its threads write.
struct UnpackInt4Params {
    const uint8_t* source;
    uint8_t* target;
    int64_t source_group_stride, source_stride;  // bytes between groups, between rows
    int64_t target_stride;                       // likewise, a multiple of 16; groups follow each other
    int64_t row_bytes;
    int64_t pieces;             // of all rows
    uint32_t row_pieces, rows;  // of a row, of a group
};

}  // namespace deep_gemm
