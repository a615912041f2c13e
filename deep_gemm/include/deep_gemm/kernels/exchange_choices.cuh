// Tells all ranks that this one's tokens are there, waits for theirs, and finds which of their choices are of experts
// here.
//
// Each block has choices of one rank, and waits for that one only. All blocks are there at once (a cooperative launch),
// so that the first one tells the others whatever these wait for.
#pragma once

#include <deep_gemm/ranks/flags.cuh>

namespace deep_gemm {

DG_DEVICE void run_exchange_choices(const ChoicesParams& params) {
    __shared__ int32_t shared_tokens;
    const Ranks& ranks = params.ranks;
    const auto block = static_cast<int32_t>(blockIdx.x), blocks = static_cast<int32_t>(gridDim.x);
    const int32_t other = block % ranks.count;
    const uint32_t call = call_now(ranks, false);
    if (block == 0) tell_all(ranks, Phase::tokens, call, params.tokens);
    if (threadIdx.x == 0) {
        const int32_t tokens = wait_for(ranks, Phase::tokens, other, call, block < ranks.count);
        if (tokens > params.bound) fail(ranks, Phase::tokens, other, call, tokens, params.bound);
        shared_tokens = tokens;
    }
    __syncthreads();
    const int32_t chosen = (shared_tokens - params.first_token) * params.choices, all = params.room * params.choices,
                  first_expert = ranks.rank * params.experts;
    const uint8_t* const part = ranks.parts[other];
    const int64_t first = int64_t{params.first_token} * params.choices;
    const auto* const ids = reinterpret_cast<const int64_t*>(part + ranks.ids) + first;
    const auto* const weights = reinterpret_cast<const float*>(part + ranks.weights) + first;
    const int64_t begin = static_cast<int64_t>(other) * all;
    const int32_t step = blocks / ranks.count * kRankThreads;
#pragma unroll 4
    for (int32_t i = block / ranks.count * kRankThreads + static_cast<int32_t>(threadIdx.x); i < all; i += step) {
        const int64_t id = i < chosen ? ids[i] - first_expert : -1;
        const bool here = id >= 0 && id < params.experts;
        params.ids[begin + i] = here ? static_cast<int32_t>(id) : -1;
        params.row_weights[begin + i] = here ? weights[i] : 0.0f;
    }
}

}  // namespace deep_gemm
