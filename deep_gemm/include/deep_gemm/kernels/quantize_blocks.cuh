// Quantise weights with a scale for each block of 128 rows and 128 of K, which a block of threads has in registers.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/quantize/across_block.cuh>
#include <deep_gemm/quantize/codes.cuh>
#include <deep_gemm/quantize/scales.cuh>
#include <deep_gemm/quantize/source.cuh>

namespace deep_gemm {

template <Constant<QuantizeConfig> c>
DG_DEVICE void run_quantize_blocks(const QuantizeParams& params) {
    constexpr int32_t kLanes = kBlockK / kPieceK, kStep = c.threads / kLanes, kPieces = kBlockRows / kStep;
    const auto thread = static_cast<int32_t>(threadIdx.x);
    int32_t matrix, row_block, k_block;
    params.find_tile(static_cast<int32_t>(blockIdx.x), matrix, row_block, k_block);
    const int32_t column = k_block * kBlockK + thread % kLanes * kPieceK, left = params.k - column,
                  row = row_block * kBlockRows + thread / kLanes;
    ptx::wait_for_previous_grid();
    Source<c> sources[kPieces];
    const uint8_t* x =
        Source<c>::place(params, distance(matrix, params.x_group_stride) + distance(row, params.x_row_stride), column);
#pragma unroll
    for (int32_t i = 0; i < kPieces; ++i, x += kStep * (bits(c.input) / 8) * params.x_row_stride)
        sources[i].load(params, x, row + i * kStep < params.rows ? left : 0);
    float values[kPieces][kPieceK], amax = 0;
#pragma unroll
    for (int32_t i = 0; i < kPieces; ++i) {
        sources[i].values(params, left, 1.0f, values[i]);
        amax = ptx::max_or_nan(amax, sources[i].largest(values[i]));
    }
    amax = largest_of_block<c.threads>(amax);
    const float scale = scale_of<c>(amax);
    const DivisorOf<c> divisor(scale);
    uint8_t* q =
        place_of_codes<c>(params, distance(matrix, params.q_group_stride) + distance(row, params.q_row_stride), column);
#pragma unroll
    for (int32_t i = 0; i < kPieces; ++i, q += kStep * params.q_row_stride)
        if (row + i * kStep < params.rows) store_quantized<c>(q, left, values[i], divisor);
    if (thread == 0)
        reinterpret_cast<float*>(params.s)[distance(matrix, params.s_group_stride) +
                                           distance(row_block, params.s_row_stride) +
                                           distance(k_block, params.s_k_stride)] = scale;
}

}  // namespace deep_gemm
