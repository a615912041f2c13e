// Brings tokens' rows, and their scales, from all ranks to where this rank's experts read them. A warp has a row.
#pragma once

#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ranks/copy_row.cuh>
#include <deep_gemm/ranks/flags.cuh>

namespace deep_gemm {

DG_DEVICE void run_pull_rows(const PullParams& params) {
    const Ranks& ranks = params.ranks;
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), each = params.room * params.choices;
    ptx::wait_for_previous_grid();
    // Those that come behind this launch are told the number as it is from now on.
    if (blockIdx.x == 0 && threadIdx.x == 0) *ranks.calls = call_now(ranks, false);
    const int32_t step = static_cast<int32_t>(gridDim.x) * kRankWarps, pieces = params.hidden / 16,
                  scales = params.hidden / 128;
#pragma unroll 1
    for (int32_t row = static_cast<int32_t>(blockIdx.x) * kRankWarps + static_cast<int32_t>(threadIdx.x / 32);
         row < params.rows; row += step) {
        const int32_t source = ptx::load_global_int(params.source + row);
        if (source < 0) continue;
        const int32_t rank = source / each, token = (source - rank * each) / params.choices;
        const uint8_t* const part = ranks.parts[rank];
        const auto* const from = reinterpret_cast<const uint4*>(part + ranks.x + int64_t{token} * params.hidden);
        const auto* const from_scales = reinterpret_cast<const float*>(part + ranks.x_scales) + int64_t{token} * scales;
        auto* const to = reinterpret_cast<uint4*>(params.out + int64_t{row} * params.hidden);
        float* const to_scales = params.out_scales + row * params.out_s_row_stride;
        for (int32_t i = lane; i < scales; i += 32) to_scales[i * params.out_s_k_stride] = from_scales[i];
#pragma unroll 1
        copy_row_by_warp(to, from, pieces, lane);
    }
}

}  // namespace deep_gemm
