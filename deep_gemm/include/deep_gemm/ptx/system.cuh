// What GPUs that share memory tell each other, by flags in it.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// st.release.sys: who acquires this word, on any GPU, sees what this thread has written, or knows of.
DG_DEVICE void store_release_system(uint64_t* word, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

/// ld.acquire.sys: what was written before the word that it has seen is seen from now on.
DG_DEVICE uint64_t load_acquire_system(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

/// %globaltimer: nanoseconds.
DG_DEVICE uint64_t nanoseconds_now() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/// trap: the launch ends here, and the context with it.
DG_DEVICE void trap() { asm volatile("trap;"); }

}  // namespace deep_gemm::ptx
