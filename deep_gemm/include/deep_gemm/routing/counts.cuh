// What all blocks of a routing kernel do alike: their choices' experts, and how many chose each.
#pragma once

#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/routing/config.cuh>

namespace deep_gemm {

/// The expert of a choice; `c.experts` where it has none.
template <Constant<RouteConfig> c>
DG_DEVICE int32_t expert_of(const RouteParams& params, int32_t choice) {
    if (choice >= params.choices) return c.experts;
    int64_t id;
    if constexpr (c.wide_ids)
        id = static_cast<const int64_t*>(params.ids)[choice];
    else
        id = static_cast<const int32_t*>(params.ids)[choice];
    return id >= 0 && id < params.experts ? static_cast<int32_t>(id) : c.experts;
}

/// The first choice of this thread's warp. Its lanes have every 32nd from there on.
DG_DEVICE int32_t first_choice() {
    return static_cast<int32_t>(blockIdx.x) * kRouteBlockChoices +
           static_cast<int32_t>(threadIdx.x / 32) * kRouteWarpChoices;
}

/// Counts the warp's choices of each expert in `of_warp`, which is zero.
template <Constant<RouteConfig> c>
DG_DEVICE void count_choices(const RouteParams& params, int32_t* of_warp) {
    int32_t experts[kRouteSteps];
    const int32_t first = first_choice() + static_cast<int32_t>(threadIdx.x % 32);
#pragma unroll
    for (int32_t i = 0; i < kRouteSteps; ++i) experts[i] = expert_of<c>(params, first + i * 32);
    // Integers: sums are the same in whatever order they come.
#pragma unroll
    for (const int32_t expert : experts)
        if (expert < c.experts) atomicAdd(of_warp + expert, 1);
}

}  // namespace deep_gemm
