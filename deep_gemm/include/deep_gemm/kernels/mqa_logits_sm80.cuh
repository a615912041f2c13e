// Index logits by mma.sync, on every GPU: a persistent grid of CTAs whose warps have keys of their own.
//
// All warps bring the queries of an atom into shared memory, as the tensor cores multiply them. Then each converts 32
// keys at a time, keeps them in registers, and lets all queries stream by, while its next keys are on their way.
#pragma once

#include <deep_gemm/mma/sm80/logits.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

template <Constant<LogitsConfig> c>
DG_DEVICE void run_mqa_logits_sm80(const LogitsParams& params) {
    using namespace sm80;
    extern __shared__ __align__(16) uint8_t dynamic_smem[];
    const int32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = ptx::lane();
    ptx::wait_for_previous_grid();
    auto& share_smem = *reinterpret_cast<ShareSmem*>(dynamic_smem + plan_logits_smem(c).share);
    ShareWalk<c> walk(share_of_cta<c, logits_threads(c)>(share_smem, true, params));
    LogitsSegment segment;
    while (walk.next(segment, lane, params)) {
        load_queries<c>(dynamic_smem, segment.atom, params);
        __syncthreads();
        score_segment<c>(dynamic_smem, segment, warp, lane, params);
        __syncthreads();
    }
    if (params.cleaned)
        clean_logits<c>(static_cast<int32_t>(blockIdx.x) * logits_warps(c) + warp,
                        static_cast<int32_t>(gridDim.x) * logits_warps(c), lane, params);
}

}  // namespace deep_gemm
