// The barrier expects an arrival of each thread, and one thread of each warp arrives.
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/memory.cuh>

#ifndef FIXED
#define FIXED 0
#endif

using namespace deep_gemm;

extern "C" __global__ void wrong_count(const float* in, float* out) {
    __shared__ float values[64];
    __shared__ alignas(8) uint64_t barrier;
    const uint32_t written = ptx::shared_address(&barrier);
    if (threadIdx.x == 0) ptx::barrier_init(written, FIXED ? 2 : 64);
    __syncthreads();
    values[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::barrier_arrive(written);
    ptx::barrier_wait(written, 0);
    out[threadIdx.x] = values[63 - threadIdx.x];
}
