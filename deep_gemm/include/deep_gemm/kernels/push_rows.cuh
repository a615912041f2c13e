// Sends rows of results to the ranks whose tokens they are of, each to its token's slot; this rank's own stay. A warp
// has a row.
#pragma once

#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ranks/copy_row.cuh>
#include <deep_gemm/ranks/flags.cuh>

namespace deep_gemm {

DG_DEVICE void run_push_rows(const PushParams& params) {
    const Ranks& ranks = params.ranks;
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), each = params.room * params.choices;
    ptx::wait_for_previous_grid();
    const int32_t step = static_cast<int32_t>(gridDim.x) * kRankWarps, pieces = params.hidden / 8;
#pragma unroll 1
    for (int32_t row = static_cast<int32_t>(blockIdx.x) * kRankWarps + static_cast<int32_t>(threadIdx.x / 32);
         row < params.rows; row += step) {
        const int32_t source = ptx::load_global_int(params.source + row);
        if (source < 0) continue;
        const int32_t rank = source / each;
        if (rank == ranks.rank) continue;
        const int64_t bytes = int64_t{params.hidden} * 2;
        const auto* const from = reinterpret_cast<const uint4*>(params.down + row * bytes);
        auto* const to = reinterpret_cast<uint4*>(ranks.parts[rank] + ranks.results + (source - rank * each) * bytes);
#pragma unroll 1
        copy_row_by_warp(to, from, pieces, lane);
    }
}

}  // namespace deep_gemm
