// The matrix instruction with scales, by what it multiplies and what scales it: 16 rows by 8 columns by 32 bytes of K.
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/ptx/mma_block_scaled.cuh>

namespace deep_gemm::sm120 {

template <Constant<Operand> kRows, Constant<Operand> kCols>
DG_DEVICE void multiply(float (&sums)[4], const uint32_t (&rows)[4], const uint32_t (&cols)[2], uint32_t row_scales,
                        ptx::ScaleSelector of_rows, uint32_t col_scales, ptx::ScaleSelector of_cols) {
    constexpr bool kFp4Rows = kRows.element == Element::e2m1r, kFp4Cols = kCols.element == Element::e2m1r;
    if constexpr (kFp4Rows && kFp4Cols && kRows.scaling.type == Element::e4m3)
        ptx::mma_nvf4(sums, rows, cols, row_scales, of_rows, col_scales, of_cols);
    else if constexpr (kFp4Rows && kFp4Cols)
        ptx::mma_mxf4(sums, rows, cols, row_scales, of_rows, col_scales, of_cols);
    else if constexpr (kFp4Rows)
        ptx::mma_mx_e2m1_e4m3(sums, rows, cols, row_scales, of_rows, col_scales, of_cols);
    else if constexpr (kFp4Cols)
        ptx::mma_mx_e4m3_e2m1(sums, rows, cols, row_scales, of_rows, col_scales, of_cols);
    else
        ptx::mma_mx_e4m3_e4m3(sums, rows, cols, row_scales, of_rows, col_scales, of_cols);
}

}  // namespace deep_gemm::sm120
