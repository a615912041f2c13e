// Counters in memory by which CTAs of one launch tell each other how far they are, and the fence between what threads
// have written there and what the copy engine reads.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// red.release.gpu.inc: count up, and from `last` on to 0. What this thread has written, or knows of by a barrier, is
/// there for who acquires the count.
DG_DEVICE void count_release(uint32_t* counter, uint32_t last) {
    asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(last) : "memory");
}

/// red.relaxed.gpu.inc: the same, and says nothing else.
DG_DEVICE void count_relaxed(uint32_t* counter, uint32_t last) {
    asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(last) : "memory");
}

/// ld.acquire.gpu: what was written before the counts that it has seen is seen from now on.
DG_DEVICE uint32_t load_acquire(const uint32_t* counter) {
    uint32_t count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}

/// fence.proxy.async.global: what this thread knows of in memory is read by its copies behind it.
DG_DEVICE void fence_memory_for_async_proxy() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace deep_gemm::ptx
