// The copy engine brings 64 numbers; they are read before the barrier said that they are there.
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/memory.cuh>

#ifndef FIXED
#define FIXED 0
#endif

using namespace deep_gemm;

extern "C" __global__ void unwaited_copy(const float* in, float* out) {
    __shared__ alignas(128) float values[64];
    __shared__ alignas(8) uint64_t barrier;
    const uint32_t arrived = ptx::shared_address(&barrier);
    if (threadIdx.x == 0) {
        ptx::barrier_init(arrived, 1);
        ptx::fence_barrier_init();
        ptx::barrier_arrive_expect(arrived, sizeof(values));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         ptx::shared_address(values)),
                     "l"(in), "r"(uint32_t(sizeof(values))), "r"(arrived)
                     : "memory");
    }
    __syncthreads();  // the barrier is initialised; the copy is on its way
    if (FIXED) ptx::barrier_wait(arrived, 0);
    out[threadIdx.x] = values[threadIdx.x];
}
