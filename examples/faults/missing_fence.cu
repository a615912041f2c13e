// Threads write to shared memory, and the copy engine, which reads by another way (the asynchronous proxy), stores it.
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tma.cuh>

#ifndef FIXED
#define FIXED 0
#endif

using namespace deep_gemm;

extern "C" __global__ void missing_fence(const float* in, float* out) {
    __shared__ alignas(128) float values[64];
    values[threadIdx.x] = in[threadIdx.x];
    if (FIXED) ptx::fence_for_async_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out),
                     "r"(ptx::shared_address(values)), "r"(uint32_t(sizeof(values)))
                     : "memory");
        ptx::commit_stores();
        ptx::wait_stores<0>();
    }
}
