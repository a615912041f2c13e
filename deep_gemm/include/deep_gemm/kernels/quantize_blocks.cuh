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
    const int32_t thread = static_cast<int32_t>(threadIdx.x), block = static_cast<int32_t>(blockIdx.x);
    const int32_t above = block / params.k_units, k_block = block - above * params.k_units,
                  matrix = above / params.row_tiles, row_block = above - matrix * params.row_tiles;
    const int32_t column = k_block * kBlockK + thread % kLanes * kPieceK,
                  row = row_block * kBlockRows + thread / kLanes;
    ptx::wait_for_previous_grid();
    Source<c> sources[kPieces];
    const int64_t x_row = matrix * params.x_group_stride + row * params.x_row_stride;
#pragma unroll
    for (int32_t i = 0; i < kPieces; ++i)
        sources[i].load(params, x_row + i * kStep * params.x_row_stride, column, row + i * kStep < params.rows);
    float values[kPieces][kPieceK], amax = 0;
#pragma unroll
    for (int32_t i = 0; i < kPieces; ++i) {
        sources[i].values(params, column, 1.0f, values[i]);
#pragma unroll
        for (const float value : values[i]) amax = ptx::max_or_nan(amax, fabsf(value));
    }
    amax = across_block<c.threads>(amax, [](float x, float y) { return ptx::max_or_nan(x, y); });
    const float scale = scale_of<c>(amax);
    const DivisorOf<c> divisor(scale);
    const int64_t q_row = matrix * params.q_group_stride + row * params.q_row_stride;
#pragma unroll
    for (int32_t i = 0; i < kPieces; ++i)
        if (row + i * kStep < params.rows)
            store_quantized<c>(params, q_row + i * kStep * params.q_row_stride, column, values[i], divisor);
    if (thread == 0)
        reinterpret_cast<float*>(params.s)[matrix * params.s_group_stride + row_block * params.s_row_stride +
                                           k_block * params.s_k_stride] = scale;
}

}  // namespace deep_gemm
