// Tells all ranks that their results were sent, waits for this rank's, and adds up each token's in FP32 and in the
// order of its slots: equal bits each time, whatever rank has which expert.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/ranks/flags.cuh>

namespace deep_gemm {

DG_DEVICE void combine_token(const ResultsParams& params, int32_t token, int32_t column) {
    const Ranks& ranks = params.ranks;
    const uint8_t* const part = ranks.parts[ranks.rank];
    const int64_t first = static_cast<int64_t>(token) * params.choices, bytes = int64_t{params.hidden} * 2;
    const auto* const ids = reinterpret_cast<const int64_t*>(part + ranks.ids);
    float sums[kResultPiece] = {};
#pragma unroll 1
    for (int32_t slot = 0; slot < params.choices; slot += kResultsAhead) {
        uint4 rows[kResultsAhead];
        bool there[kResultsAhead];
#pragma unroll
        for (int32_t i = 0; i < kResultsAhead; ++i) {
            const int64_t choice = first + slot + i, id = slot + i < params.choices ? ids[choice] : -1;
            there[i] = id >= 0 && id < params.num_experts;
            const uint8_t* const from = part + ranks.results + choice * bytes + column * 2;
            rows[i] = there[i] ? *reinterpret_cast<const uint4*>(from) : uint4{};
        }
#pragma unroll
        for (int32_t i = 0; i < kResultsAhead; ++i) {
            if (!there[i]) continue;
            const uint32_t words[] = {rows[i].x, rows[i].y, rows[i].z, rows[i].w};
#pragma unroll
            for (int32_t j = 0; j < kResultPiece / 2; ++j) {
                const float2 pair = Pack<Element::bf16>::unpack(words[j]);
                sums[2 * j] = __fadd_rn(sums[2 * j], pair.x);
                sums[2 * j + 1] = __fadd_rn(sums[2 * j + 1], pair.y);
            }
        }
    }
    const auto pack = [&](int32_t i) { return Pack<Element::bf16>::pack(sums[i], sums[i + 1]); };
    *reinterpret_cast<uint4*>(params.out + token * params.out_row_stride + column * 2) =
        uint4{pack(0), pack(2), pack(4), pack(6)};
}

DG_DEVICE void run_combine_results(const ResultsParams& params) {
    const Ranks& ranks = params.ranks;
    const uint32_t call = call_now(ranks, true);
    if (blockIdx.x == 0) tell_all(ranks, Phase::results, call, 0);
    if (static_cast<int32_t>(threadIdx.x) < ranks.count)
        wait_for(ranks, Phase::results, static_cast<int32_t>(threadIdx.x), call, blockIdx.x == 0);
    __syncthreads();
    const int32_t items = params.tokens * params.column_blocks;
#pragma unroll 1
    for (auto item = static_cast<int32_t>(blockIdx.x); item < items; item += static_cast<int32_t>(gridDim.x)) {
        const int32_t token = item / params.column_blocks,
                      column = (item - token * params.column_blocks) * kResultColumns +
                               static_cast<int32_t>(threadIdx.x) * kResultPiece;
        if (column < params.hidden) combine_token(params, token, column);
    }
}

}  // namespace deep_gemm
