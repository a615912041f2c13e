// One value of all threads of a block.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

/// All threads call it, with the same `across_warp`, which makes of all lanes' values one that all of them get, in
/// whatever order; all threads get the result. 0 must change nothing.
template <int32_t kThreads, typename Value, typename AcrossWarp>
DG_DEVICE Value across_block(Value value, const AcrossWarp& across_warp) {
    constexpr int32_t kWarps = kThreads / 32;
    __shared__ Value of_warps[kWarps];
    value = across_warp(value);
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
    __syncthreads();  // the values of the time before are read
    if (lane == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    return across_warp(lane < kWarps ? of_warps[lane] : Value{});
}

/// The largest of numbers that are not negative; NaN where one of them is. Their bits are in the same order, those of
/// NaN above all.
template <int32_t kThreads>
DG_DEVICE float largest_of_block(float value) {
    return __uint_as_float(across_block<kThreads>(__float_as_uint(value),
                                                  [](uint32_t bits) { return __reduce_max_sync(0xffffffff, bits); }));
}

template <int32_t kThreads>
DG_DEVICE int32_t sum_of_block(int32_t value) {
    return across_block<kThreads>(value, [](int32_t x) { return __reduce_add_sync(0xffffffff, x); });
}

}  // namespace deep_gemm
