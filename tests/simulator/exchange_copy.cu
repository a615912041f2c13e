// Block 0 writes words by ordinary stores and counts; block 1 waits for the count and copies them by the copy engine.
// Correct with BUG=0; each other value of BUG plants one mistake.
#include <deep_gemm/params.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/count.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tma.cuh>

using namespace deep_gemm;

struct Params {
    TensorMap map;
    uint32_t *words, *counter, *out;
};

extern "C" __global__ void exchange_copy(const __grid_constant__ Params p) {
    __shared__ alignas(128) uint32_t copied[32];
    __shared__ uint64_t barrier;
    const uint32_t lane = threadIdx.x;
    if (blockIdx.x == 0) {
        if (BUG != 3) p.words[lane] = lane + 1;
        if (BUG != 1) __syncwarp();
        if (lane == 0) {
            if (BUG == 2)
                ptx::count_relaxed(p.counter, 1);
            else
                ptx::count_release(p.counter, 1);
        }
        if (BUG == 3) p.words[lane] = lane + 1;
        return;
    }
    const uint32_t full = ptx::shared_address(&barrier);
    if (lane == 0) {
        ptx::barrier_init(full, 1);
        ptx::fence_barrier_init();
    }
    __syncwarp();
    if (BUG == 4)
        while (*static_cast<volatile uint32_t*>(p.counter) == 0) continue;
    else
        while (ptx::load_acquire(p.counter) == 0) continue;
    if (BUG == 6)
        ptx::fence_for_async_proxy();
    else if (BUG != 5)
        ptx::fence_memory_for_async_proxy();
    if (lane == 0) {
        ptx::barrier_arrive_expect(full, sizeof(copied));
        ptx::load_box(ptx::shared_address(copied), &p.map, full, 0, 0, 0, ptx::CacheHint::normal);
    }
    __syncwarp();
    ptx::barrier_wait(full, 0);
    p.out[lane] = copied[lane];
    if (lane == 0) ptx::count_relaxed(p.counter, 1);
}
