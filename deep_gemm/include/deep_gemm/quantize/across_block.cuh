// One value of all threads of a block.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

/// All threads call it, with the same operation, which must not care for the order; all get the result. 0 must change
/// nothing.
template <int32_t kThreads, typename Value, typename Operation>
DG_DEVICE Value across_block(Value value, const Operation& operation) {
    constexpr int32_t kWarps = kThreads / 32;
    __shared__ Value of_warps[kWarps];
#pragma unroll
    for (int32_t distance = 16; distance > 0; distance /= 2)
        value = operation(value, __shfl_xor_sync(0xffffffff, value, distance));
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
    __syncthreads();  // the values of the time before are read
    if (lane == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = lane < kWarps ? of_warps[lane] : Value{};
#pragma unroll
    for (int32_t distance = 16; distance > 0; distance /= 2)
        value = operation(value, __shfl_xor_sync(0xffffffff, value, distance));
    return value;
}

}  // namespace deep_gemm
