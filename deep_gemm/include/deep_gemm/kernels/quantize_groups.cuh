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

template <Constant<QuantizeConfig> c>
DG_DEVICE void quantize_tile(const QuantizeParams& params, int32_t matrix, int32_t first_row, int32_t end,
                             int32_t first_column) {
    using Own = OwnRows<c>;
    constexpr int32_t kRows = c.rows;
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), column = first_column + lane * kPieceK;
    const uint32_t existing = existing_rows<c, kRows>(params, first_row, end);
    if (existing == 0) return;

    Source<c> sources[kRows];
    const int64_t x_row = matrix * params.x_group_stride + first_row * params.x_row_stride;
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i)
        sources[i].load(params, x_row + i * params.x_row_stride, column, (existing >> i & 1) != 0);
    wait_for_all<c>(sources);

    float values[kRows][kPieceK], amax[kRows];
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i) {
        float row_scale = 1.0f;
        if constexpr (c.row_scale)
            if ((existing >> i & 1) != 0)
                row_scale =
                    params
                        .row_scale[matrix * params.row_scale_group_stride + (first_row + i) * params.row_scale_stride];
        sources[i].values(params, column, row_scale, values[i]);
        amax[i] = 0.0f;
#pragma unroll
        for (const float value : values[i]) amax[i] = ptx::max_or_nan(amax[i], fabsf(value));
    }
    Own::reduce(amax);

    DivisorOf<c> divisors[Own::kCount];
    const int32_t k_group = column / c.group;
#pragma unroll
    for (int32_t i = 0; i < Own::kCount; ++i) {
        const int32_t row = Own::first(lane) + i;
        const MadeScale scale = make_scale<c>(params, amax[i]);
        divisors[i] = DivisorOf<c>(scale.divisor, amax[i]);
        if (Own::writes(lane) && (existing >> row & 1) != 0 && k_group * c.group < params.k)
            store_scale<c>(params, matrix, first_row + row, k_group, scale.stored);
    }

    const int64_t q_row = matrix * params.q_group_stride + first_row * params.q_row_stride;
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i) {
        const DivisorOf<c> divisor = divisors[i % Own::kCount].of_lane(Own::lane_of(i, lane));
        if ((existing >> i & 1) != 0)
            store_quantized<c>(params, q_row + i * params.q_row_stride, column, values[i], divisor);
    }
}

template <Constant<QuantizeConfig> c>
DG_DEVICE void run_quantize_groups(const QuantizeParams& params) {
    const uint32_t warp = blockIdx.x * kQuantizeWarps + threadIdx.x / 32;
    ptx::wait_for_previous_grid();
    if (warp >= static_cast<uint32_t>(params.tiles)) return;
    const int32_t above = static_cast<int32_t>(warp / params.k_units),
                  unit = static_cast<int32_t>(warp) - above * params.k_units, matrix = above / params.row_tiles;
    const int32_t end = rows_of_matrix<c>(params, matrix);
#pragma unroll 1
    for (int32_t row = (above - matrix * params.row_tiles) * c.rows; row < end; row += params.row_tiles * c.rows)
        quantize_tile<c>(params, matrix, row, end, unit * kWarpK);
}

}  // namespace deep_gemm
