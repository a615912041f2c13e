// A row of an expert here: whose token it is of, where that lies, and where its result is added up.
#pragma once

#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ranks/config.cuh>
#include <deep_gemm/ranks/copy_row.cuh>

namespace deep_gemm {

/// Of a row's number among [ranks][room][choices].
struct RowOwner {
    int32_t rank, choice;  // of the rank's

    DG_DEVICE RowOwner(const TravelParams& params, int32_t source) {
        const int32_t each = params.room * params.choices;
        rank = source / each;
        choice = source - rank * each + params.first_token * params.choices;
    }
};

/// A token's row, and its scales, from the rank that has it. A warp.
DG_DEVICE void pull_row(const PullParams& params, int32_t row, int32_t source, int32_t lane) {
    const RowOwner owner(params, source);
    const int32_t token = owner.choice / params.choices, pieces = params.hidden / 16, scales = params.hidden / 128;
    const uint8_t* const part = params.ranks.parts[owner.rank];
    const auto* const from = reinterpret_cast<const uint4*>(part + params.ranks.x + int64_t{token} * params.hidden);
    const auto* const from_scales =
        reinterpret_cast<const float*>(part + params.ranks.x_scales) + int64_t{token} * scales;
    auto* const to = reinterpret_cast<uint4*>(params.out + int64_t{row} * params.hidden);
    float* const to_scales = params.out_scales + row * params.out_s_row_stride;
#pragma unroll 1
    for (int32_t i = lane; i < scales; i += 32) to_scales[i * params.out_s_k_stride] = from_scales[i];
#pragma unroll 1
    copy_row_by_warp(to, from, pieces, lane);
}

/// Where a row's result goes: bfloat16.
DG_DEVICE uint8_t* result_of(const TravelParams& params, int32_t source) {
    const RowOwner owner(params, source);
    return params.ranks.parts[owner.rank] + params.ranks.results + int64_t{owner.choice} * params.hidden * 2;
}

}  // namespace deep_gemm
