// Where each SM's part of paged index logits begins: splits of 256 keys, dealt out evenly in the order of requests.
#pragma once

#include <deep_gemm/kernels/mqa_logits_metadata_params.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

/// One CTA. A thread has requests that follow each other, and writes the entries of SMs that begin among theirs.
DG_DEVICE void run_mqa_logits_metadata(const LogitsMetadataParams& params) {
    constexpr int32_t kWarps = kLogitsMetadataThreads / 32;
    __shared__ int64_t warp_sums[kWarps];
    ptx::wait_for_previous_grid();
    const int32_t thread = static_cast<int32_t>(threadIdx.x), lane = thread % 32, warp = thread / 32;
    const int32_t each = ceil_div(params.requests, kLogitsMetadataThreads);
    const int32_t first = min(thread * each, params.requests), last = min(first + each, params.requests);
    const auto splits_of = [&](int32_t request) {
        const int32_t length = params.lengths[static_cast<int64_t>(request) * params.length_stride];
        return ceil_div(max(length, 0), kLogitsSplitKeys);
    };
    int64_t mine = 0;
    for (int32_t request = first; request < last; ++request) mine += splits_of(request);
    int64_t before = mine;
#pragma unroll
    for (int32_t distance = 1; distance < 32; distance *= 2) {
        const int64_t other = __shfl_up_sync(0xffffffff, before, distance);
        if (lane >= distance) before += other;
    }
    if (lane == 31) warp_sums[warp] = before;
    __syncthreads();
    before -= mine;
    int64_t total = 0;
    for (int32_t i = 0; i < kWarps; ++i) {
        if (i == warp) before += total;
        total += warp_sums[i];
    }
    const auto begin_of = [&](int64_t sm) { return total * sm / params.sms; };
    const auto write = [&](int64_t sm, int32_t request, int32_t split) {
        params.starts[2 * sm] = request, params.starts[2 * sm + 1] = split;
    };
    for (int32_t request = first; request < last; ++request) {
        const int32_t splits = splits_of(request);
        if (splits > 0)
            for (int64_t sm = (before * params.sms + total - 1) / total;
                 sm < params.sms && begin_of(sm) < before + splits; ++sm)
                write(sm, request, static_cast<int32_t>(begin_of(sm) - before));
        before += splits;
    }
    // Behind the last split.
    for (int64_t sm = thread; sm <= params.sms; sm += kLogitsMetadataThreads)
        if (begin_of(sm) == total) write(sm, params.requests, 0);
}

}  // namespace deep_gemm
