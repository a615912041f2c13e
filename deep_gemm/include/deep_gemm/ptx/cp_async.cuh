// cp.async: each thread copies up to 16 bytes past its registers. It knows of its own copies only, once it has waited
// for them; what others wait for is a barrier that it comes to afterwards.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// cp.async.cg: 16 bytes to shared memory, both addresses multiples of 16, past the L1. Of the source `given` bytes are
/// read, none at all where it is 0; zeros follow.
DG_DEVICE void copy_async_x16(uint32_t destination, const void* source, uint32_t given) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(given)
                 : "memory");
}

/// cp.async.ca: the same of 4 or 8 bytes.
template <int kBytes>
DG_DEVICE void copy_async(uint32_t destination, const void* source, uint32_t given) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(destination), "l"(source), "n"(kBytes),
                 "r"(given)
                 : "memory");
}

/// cp.async.commit_group: this thread's copies so far form a group.
DG_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// cp.async.wait_group: all groups of this thread but the last kPending have come.
template <int kPending>
DG_DEVICE void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// cp.async.wait_all: all copies of this thread have come, those of no group too.
DG_DEVICE void wait_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// cp.async.mbarrier.arrive.noinc: arrive once this thread's copies so far have come; one of the expected arrivals.
DG_DEVICE void barrier_arrive_after_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace deep_gemm::ptx
