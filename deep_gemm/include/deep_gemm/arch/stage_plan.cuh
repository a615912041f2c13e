// Where the parts of stages lie in shared memory: in the same order on every architecture.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

struct StagePlan {
    int32_t rows_bytes, cols_bytes, row_scale_bytes, col_scale_bytes, zero_bytes, block_scale_bytes;  // of one stage
    int32_t rows, cols, row_scales, col_scales, zeros, block_scales;                                  // offsets

    /// From `begin` on. Returns where they end.
    constexpr int32_t place(int32_t begin, int32_t stages) {
        rows = begin;
        cols = rows + stages * rows_bytes;
        row_scales = cols + stages * cols_bytes;
        col_scales = row_scales + stages * row_scale_bytes;
        zeros = col_scales + stages * col_scale_bytes;
        block_scales = zeros + stages * zero_bytes;
        return block_scales + stages * block_scale_bytes;
    }
};

}  // namespace deep_gemm
