// Quantise with a scale for each row and group of K.
//
// A warp has a tile: a few rows, 256 of K wide. Of each row a thread has eight neighbours, read at once, all rows'
// before the first is looked at. Lanes of a group find the largest magnitude; each row's scale is made by a lane of its
// own, so that scales of neighbouring rows, which are neighbours in memory, are written together.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/quantize/codes.cuh>
#include <deep_gemm/quantize/rows.cuh>
#include <deep_gemm/quantize/scales.cuh>
#include <deep_gemm/quantize/source.cuh>

namespace deep_gemm {

/// The rows of a tile whose scales a lane makes: of the kLanes lanes of a group, the first ones have the first rows.
template <Constant<QuantizeConfig> c>
struct OwnRows {
    static constexpr int32_t kLanes = c.group_lanes(), kRows = c.rows;
    static constexpr int32_t kCount = kRows > kLanes ? kRows / kLanes : 1;    // rows of a lane
    static constexpr int32_t kSharing = kRows < kLanes ? kLanes / kRows : 1;  // lanes that have the same row

    static DG_DEVICE int32_t first(int32_t lane) { return lane % kLanes / kSharing * kCount; }
    static DG_DEVICE bool writes(int32_t lane) { return lane % kSharing == 0; }
    /// Which lane has a row, and as which of its own.
    static DG_DEVICE int32_t lane_of(int32_t row, int32_t lane) {
        return lane / kLanes * kLanes + row / kCount * kSharing;
    }

    /// Each lane's magnitude of each row -> the largest of its group in its own rows. Halves of the lanes halve the
    /// rows among each other as long as there are several.
    static DG_DEVICE void reduce(float (&amax)[kRows]) {
        const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
        int32_t rows = kRows;
#pragma unroll
        for (int32_t distance = kLanes / 2; distance > 0; distance /= 2) {
            if (rows > 1) {
                rows /= 2;
                const bool upper = (lane & distance) != 0;
#pragma unroll
                for (int32_t i = 0; i < kRows / 2; ++i) {
                    if (i >= rows) break;
                    const float kept = upper ? amax[i + rows] : amax[i], given = upper ? amax[i] : amax[i + rows];
                    amax[i] = ptx::max_or_nan(kept, __shfl_xor_sync(0xffffffff, given, distance));
                }
            } else {
                amax[0] = ptx::max_or_nan(amax[0], __shfl_xor_sync(0xffffffff, amax[0], distance));
            }
        }
    }
};

/// `existing` has a bit for each row. Of a full tile, whose rows and columns all exist, nothing is asked.
template <Constant<QuantizeConfig> c, bool kFull>
DG_DEVICE void quantize_tile(const QuantizeParams& params, int32_t matrix, int32_t first_row, uint32_t existing,
                             int32_t first_column) {
    using Own = OwnRows<c>;
    constexpr int32_t kRows = c.rows;
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), column = first_column + lane * kPieceK,
                  of_row = kFull ? kPieceK : params.k - column;
    const auto exists = [&](int32_t row) { return kFull || (existing >> row & 1) != 0; };

    Source<c> sources[kRows];
    const uint8_t* x =
        Source<c>::place(params, distance(matrix, params.x_group_stride) + distance(first_row, params.x_row_stride),
                         column);
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i, x += params.x_row_stride * (bits(c.input) / 8))
        sources[i].load(params, x, exists(i) ? of_row : 0);
    wait_for_all<c>(sources);

    float values[kRows][kPieceK], amax[kRows];
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i) {
        float row_scale = 1.0f;
        if constexpr (c.row_scale)
            if (exists(i))
                row_scale = params.row_scale[distance(matrix, params.row_scale_group_stride) +
                                             distance(first_row + i, params.row_scale_stride)];
        sources[i].values(params, of_row, row_scale, values[i]);
        amax[i] = sources[i].largest(values[i]);
    }
    Own::reduce(amax);

    DivisorOf<c> divisors[Own::kCount];
    const int32_t k_group = static_cast<int32_t>(static_cast<uint32_t>(column) / c.group);
#pragma unroll
    for (int32_t i = 0; i < Own::kCount; ++i) {
        const int32_t row = Own::first(lane) + i;
        const MadeScale scale = make_scale<c>(params, amax[i]);
        divisors[i] = DivisorOf<c>(scale.divisor, amax[i]);
        if (Own::writes(lane) && exists(row) && (kFull || k_group * c.group < params.k))
            store_scale<c>(params, matrix, first_row + row, k_group, scale.stored);
    }

    uint8_t* q =
        place_of_codes<c>(params, distance(matrix, params.q_group_stride) + distance(first_row, params.q_row_stride),
                          column);
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i, q += params.q_row_stride) {
        const DivisorOf<c> divisor = divisors[i % Own::kCount].of_lane(Own::lane_of(i, lane));
        if (exists(i)) store_quantized<c>(q, of_row, values[i], divisor);
    }
}

template <Constant<QuantizeConfig> c>
DG_DEVICE void run_quantize_groups(const QuantizeParams& params) {
    const uint32_t warp = blockIdx.x * kQuantizeWarps + threadIdx.x / 32;
    ptx::wait_for_previous_grid();
    if (warp >= static_cast<uint32_t>(params.tiles)) return;
    int32_t matrix, row_tile, unit;
    params.find_tile(static_cast<int32_t>(warp), matrix, row_tile, unit);
    const int32_t end = rows_of_matrix<c>(params, matrix), column = unit * kWarpK;
    const auto tile = [&](int32_t row) {
        const uint32_t existing = existing_rows<c, c.rows>(params, row, end);
        // A warp knows of all its lanes' conditions only by a vote that they are one.
        if (__all_sync(0xffffffff, existing == (1u << c.rows) - 1 && column + kWarpK <= params.k))
            quantize_tile<c, true>(params, matrix, row, existing, column);
        else if (existing != 0)
            quantize_tile<c, false>(params, matrix, row, existing, column);
    };
    if constexpr (c.layout != RowLayout::masked) {
        tile(row_tile * c.rows);
    } else {
#pragma unroll 1
        for (int32_t row = row_tile * c.rows; row < end; row += static_cast<int32_t>(params.row_tiles.divisor) * c.rows)
            tile(row);
    }
}

}  // namespace deep_gemm
