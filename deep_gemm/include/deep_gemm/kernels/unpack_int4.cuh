// Unpack integers of four bits to bytes, in rows that the copy engine can read.
#pragma once

#include <deep_gemm/kernels/unpack_int4_params.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

DG_DEVICE void run_unpack_int4(const UnpackInt4Params& params) {
    const int64_t piece = static_cast<int64_t>(blockIdx.x) * kUnpackInt4Threads + threadIdx.x;
    ptx::wait_for_previous_grid();
    if (piece >= params.pieces) return;
    const int64_t row = piece / params.row_pieces, group = row / params.rows;
    const int64_t at = (piece - row * params.row_pieces) * kUnpackInt4Bytes;
    const uint8_t* source =
        params.source + group * params.source_group_stride + (row - group * params.rows) * params.source_stride + at;
    uint64_t unpacked = 0;
#pragma unroll
    for (int32_t i = 0; i < kUnpackInt4Bytes; ++i) {
        const uint32_t both = at + i < params.row_bytes ? source[i] : 0;
        // As signs of four bits extended to eight: to the upper half of a byte, and down with its sign.
        const uint32_t first = static_cast<uint8_t>(static_cast<int8_t>(both << 4) >> 4),
                       second = static_cast<uint8_t>(static_cast<int8_t>(both) >> 4);
        unpacked |= static_cast<uint64_t>(first | second << 8) << (16 * i);
    }
    *reinterpret_cast<uint64_t*>(params.target + row * params.target_stride + 2 * at) = unpacked;
}

}  // namespace deep_gemm
