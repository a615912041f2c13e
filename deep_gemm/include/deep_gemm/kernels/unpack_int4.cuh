// Integers of four bits, two neighbours along K a byte, to rows that the product's kernel can read: unpacked to bytes,
// or, where the tensor cores multiply four bits, in the order in which packed weights come.
#pragma once

#include <deep_gemm/kernels/unpack_int4_params.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

/// The thread's share of a row: `kBytes` from `at` on, of which those past the row's end are 0.
template <int32_t kBytes>
struct Int4Piece {
    bool is_inside;
    const uint8_t* source;
    uint8_t* row;
    int64_t at, left;

    DG_DEVICE explicit Int4Piece(const UnpackInt4Params& params) {
        const int64_t piece = static_cast<int64_t>(blockIdx.x) * kUnpackInt4Threads + threadIdx.x;
        is_inside = piece < params.pieces;
        const int64_t line = piece / params.row_pieces, group = line / params.rows;
        at = (piece - line * params.row_pieces) * kBytes;
        left = params.row_bytes - at;
        source = params.source + group * params.source_group_stride +
                 (line - group * params.rows) * params.source_stride + at;
        row = params.target + line * params.target_stride;
    }

    DG_DEVICE uint32_t byte(int32_t i) const { return i < left ? source[i] : 0; }
};

DG_DEVICE void run_unpack_int4(const UnpackInt4Params& params) {
    ptx::wait_for_previous_grid();
    const Int4Piece<kUnpackInt4Bytes> piece(params);
    if (!piece.is_inside) return;
    uint64_t unpacked = 0;
#pragma unroll
    for (int32_t i = 0; i < kUnpackInt4Bytes; ++i) {
        const uint32_t both = piece.byte(i);
        // As signs of four bits extended to eight: to the upper half of a byte, and down with its sign.
        const uint32_t first = static_cast<uint8_t>(static_cast<int8_t>(both << 4) >> 4),
                       second = static_cast<uint8_t>(static_cast<int8_t>(both) >> 4);
        unpacked |= static_cast<uint64_t>(first | second << 8) << (16 * i);
    }
    *reinterpret_cast<uint64_t*>(piece.row + 2 * piece.at) = unpacked;
}

/// Of 32 of K the first 16 in the lower halves of 16 bytes, the others in the upper ones.
DG_DEVICE void run_interleave_int4(const UnpackInt4Params& params) {
    ptx::wait_for_previous_grid();
    const Int4Piece<kInterleaveInt4Bytes> piece(params);
    if (!piece.is_inside) return;
    // Four neighbours in two bytes, each to a byte of its own.
    const auto spread = [&](int32_t i) {
        const uint32_t four = piece.byte(i) | piece.byte(i + 1) << 16;
        return (four | four << 4) & 0x0f0f0f0f;
    };
    uint32_t words[4];
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) words[i] = spread(2 * i) | spread(8 + 2 * i) << 4;
    *reinterpret_cast<int4*>(piece.row + piece.at) =
        make_int4(static_cast<int32_t>(words[0]), static_cast<int32_t>(words[1]), static_cast<int32_t>(words[2]),
                  static_cast<int32_t>(words[3]));
}

}  // namespace deep_gemm
