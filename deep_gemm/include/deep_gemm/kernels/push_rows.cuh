// Sends rows of results to the ranks whose tokens they are of, each to its token's slot. A warp has a row.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ranks/rows.cuh>

namespace deep_gemm {

DG_DEVICE void run_push_rows(const PushParams& params) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), step = static_cast<int32_t>(gridDim.x) * kRankWarps;
    ptx::wait_for_previous_grid();
#pragma unroll 1
    for (int32_t row = static_cast<int32_t>(blockIdx.x) * kRankWarps + static_cast<int32_t>(threadIdx.x / 32);
         row < params.rows; row += step) {
        const int32_t source = ptx::load_global_int(params.source + row);
        if (source < 0) continue;
        const auto* const from = reinterpret_cast<const uint4*>(params.down + int64_t{row} * params.hidden * 2);
#pragma unroll 1
        copy_row_by_warp(reinterpret_cast<uint4*>(result_of(params, source)), from, params.hidden / 8, lane);
    }
}

}  // namespace deep_gemm
