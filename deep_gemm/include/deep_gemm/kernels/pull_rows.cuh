// Brings tokens' rows, and their scales, from all ranks to where this rank's experts read them. A warp has a row.
#pragma once

#include <deep_gemm/ranks/flags.cuh>
#include <deep_gemm/ranks/rows.cuh>

namespace deep_gemm {

DG_DEVICE void run_pull_rows(const PullParams& params) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), step = static_cast<int32_t>(gridDim.x) * kRankWarps;
    ptx::wait_for_previous_grid();
    if (blockIdx.x == 0 && threadIdx.x == 0) count_call(params.ranks);
#pragma unroll 1
    for (int32_t row = static_cast<int32_t>(blockIdx.x) * kRankWarps + static_cast<int32_t>(threadIdx.x / 32);
         row < params.rows; row += step) {
        const int32_t source = ptx::load_global_int(params.source + row);
        if (source >= 0) pull_row(params, row, source, lane);
    }
}

}  // namespace deep_gemm
