// How many of a block's choices are of each expert, where there are several blocks.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/routing/counts.cuh>

namespace deep_gemm {

template <Constant<RouteConfig> c>
DG_DEVICE void run_route_count(const RouteParams& params) {
    __shared__ int32_t counts[c.experts];
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < c.experts; i += kRouteThreads) counts[i] = 0;
    ptx::wait_for_previous_grid();
    __syncthreads();
    count_choices<c>(params, counts);
    __syncthreads();
    int32_t* const out = params.block_counts + static_cast<int64_t>(blockIdx.x) * params.experts;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < params.experts; i += kRouteThreads) out[i] = counts[i];
}

}  // namespace deep_gemm
