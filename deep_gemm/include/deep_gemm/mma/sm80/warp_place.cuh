// Which part of a tile, and of a stage's K, is a warp's.
#pragma once

#include <deep_gemm/arch/sm80.cuh>

namespace deep_gemm::sm80 {

template <Constant<GemmConfig> c>
struct WarpPlace {
    int32_t row, col, k;  // first row and column in the tile; which of the warps that split K

    DG_DEVICE WarpPlace() {
        const int32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
        row = warp % c.sm80.row_warps * warp_rows(c);
        col = warp / c.sm80.row_warps % c.col_warps * warp_cols(c);
        k = warp / (c.sm80.row_warps * c.col_warps);
    }
};

}  // namespace deep_gemm::sm80
