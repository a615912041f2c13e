// Tells all ranks that their results were sent, waits for this rank's, and adds up each token's in the order of its
// slots: whatever rank has which expert.
#pragma once

#include <deep_gemm/ranks/flags.cuh>
#include <deep_gemm/routing/combine.cuh>

namespace deep_gemm {

DG_DEVICE void combine_token(const ResultsParams& params, int32_t token, int32_t column) {
    using Stored = StorageOf<Element::bf16>;
    const uint8_t* const part = params.ranks.parts[params.ranks.rank];
    const int64_t first = static_cast<int64_t>(token) * params.choices;
    const auto* const ids = reinterpret_cast<const int64_t*>(part + params.ranks.ids) + first;
    const auto* const results =
        reinterpret_cast<const Stored*>(part + params.ranks.results) + first * params.hidden + column;
    const auto addend_of = [&](int32_t slot, bool known) {
        const int64_t id = known ? ids[slot] : -1;
        return Addend<Element::bf16>{id >= 0 && id < params.num_experts,
                                     results + static_cast<int64_t>(slot) * params.hidden};
    };
    auto* const out = reinterpret_cast<Stored*>(params.out + token * params.out_row_stride) + column;
    combine_slots<Element::bf16, Element::bf16, false, true>(out, params.hidden - column, params.choices, addend_of);
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
                               static_cast<int32_t>(threadIdx.x) * kCombinePiece;
        if (column < params.hidden) combine_token(params, token, column);
    }
}

}  // namespace deep_gemm
