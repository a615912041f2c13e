// Quantise with a scale for each row.
//
// A block has a row, of which each thread keeps the first pieces in registers between the largest magnitude and the
// codes. What of a very long row is left is read twice, the second time from the L2.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/quantize/across_block.cuh>
#include <deep_gemm/quantize/codes.cuh>
#include <deep_gemm/quantize/rows.cuh>
#include <deep_gemm/quantize/scales.cuh>
#include <deep_gemm/quantize/source.cuh>

namespace deep_gemm {

/// What a scale is made of: the largest magnitude, or with zero points the range, which has 0 in it.
template <Constant<QuantizeConfig> c>
struct Range {
    float below = 0, high = 0;  // from the least number to 0, from 0 to the largest

    DG_DEVICE void add(const Source<c>& source, const float (&values)[kPieceK]) {
        if constexpr (!c.zeros) {
            high = ptx::max_or_nan(high, source.largest(values));
        } else {
#pragma unroll
            for (const float value : values)
                high = ptx::max_or_nan(high, value), below = ptx::max_or_nan(below, -value);
        }
    }
    DG_DEVICE void across_threads() {
        high = largest_of_block<c.threads>(high);
        if constexpr (c.zeros) below = largest_of_block<c.threads>(below);
    }
};

DG_DEVICE int32_t sum_of_codes(uint2 codes) {
    constexpr int32_t kOnes = 0x01010101;
    return __dp4a(static_cast<int32_t>(codes.x), kOnes, __dp4a(static_cast<int32_t>(codes.y), kOnes, 0));
}

template <Constant<QuantizeConfig> c>
DG_DEVICE void quantize_row(const QuantizeParams& params, int32_t matrix, int32_t row) {
    constexpr int32_t kStep = c.threads * kPieceK, kPieces = c.row_pieces();
    const int32_t first = static_cast<int32_t>(threadIdx.x) * kPieceK;
    const int64_t x_row = distance(matrix, params.x_group_stride) + distance(row, params.x_row_stride),
                  q_row = distance(matrix, params.q_group_stride) + distance(row, params.q_row_stride);
    const auto load = [&](Source<c>& source, int32_t column) {
        source.load(params, Source<c>::place(params, x_row, column), params.k - column);
    };
    float row_scale = 1.0f;
    if constexpr (c.row_scale)
        row_scale =
            params.row_scale[distance(matrix, params.row_scale_group_stride) + distance(row, params.row_scale_stride)];
    Source<c> sources[kPieces];
#pragma unroll
    for (int32_t i = 0; i < kPieces; ++i) load(sources[i], first + i * kStep);
    wait_for_all<c>(sources);
    Range<c> range;
    float kept[kPieces][kPieceK];
#pragma unroll
    for (int32_t i = 0; i < kPieces; ++i) {
        sources[i].values(params, params.k - first - i * kStep, row_scale, kept[i]);
        range.add(sources[i], kept[i]);
    }
#pragma unroll 1
    for (int32_t column = first + kPieces * kStep; column < params.k; column += kStep) {
        Source<c> source;
        float values[kPieceK];
        load(source, column);
        source.values(params, params.k - column, row_scale, values);
        range.add(source, values);
    }
    range.across_threads();

    float scale, zero = 0.0f;
    if constexpr (c.zeros) {
        scale = divided_by<255>(ptx::max_or_nan(__fadd_rn(range.high, range.below), kSmallestAmax));
        zero = __fsub_rn(-128.0f, nearest(__fdiv_rn(-range.below, scale)));
    } else {
        scale = scale_of<c>(range.high);
    }
    const DivisorOf<c> divisor(scale);
    int32_t sum = 0;
    const auto store = [&](int32_t column, const float (&values)[kPieceK]) {
        const uint2 codes =
            store_quantized<c>(place_of_codes<c>(params, q_row, column), params.k - column, values, divisor, zero);
        // Behind K there are zeros, whose codes are the zero point.
        if constexpr (c.sums) {
            const int32_t behind = min(max(column + kPieceK - params.k, 0), kPieceK);
            sum += sum_of_codes(codes) - behind * static_cast<int32_t>(zero);
        }
    };
#pragma unroll
    for (int32_t i = 0; i < kPieces; ++i) store(first + i * kStep, kept[i]);
#pragma unroll 1
    for (int32_t column = first + kPieces * kStep; column < params.k; column += kStep) {
        Source<c> source;
        float values[kPieceK];
        load(source, column);
        source.values(params, params.k - column, row_scale, values);
        store(column, values);
    }
    if constexpr (c.sums) sum = sum_of_block<c.threads>(sum);
    if (threadIdx.x != 0) return;
    reinterpret_cast<float*>(params.s)[distance(matrix, params.s_group_stride) + distance(row, params.s_row_stride)] =
        scale;
    const int64_t index = static_cast<int64_t>(matrix) * params.rows + row;
    if constexpr (c.zeros) params.zeros[index] = static_cast<int32_t>(zero);
    if constexpr (c.sums) params.sums[index] = sum;
}

template <Constant<QuantizeConfig> c>
DG_DEVICE void run_quantize_rows(const QuantizeParams& params) {
    int32_t matrix, first, unit;
    params.find_tile(static_cast<int32_t>(blockIdx.x), matrix, first, unit);
    ptx::wait_for_previous_grid();
    const int32_t end = rows_of_matrix<c>(params, matrix);
#pragma unroll 1
    for (int32_t row = first; row < end; row += static_cast<int32_t>(params.row_tiles.divisor))
        if (existing_rows<c, 1>(params, row, end) != 0) quantize_row<c>(params, matrix, row);
}

}  // namespace deep_gemm
