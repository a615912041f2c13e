// mbarrier: a count of arrivals and of bytes under way; a phase ends when both reach zero.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

DG_DEVICE void barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// mbarrier.inval: its memory may hold anything else from now on. Nobody may use the barrier any more.
DG_DEVICE void barrier_invalidate(uint32_t barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// fence.mbarrier_init: initialised barriers become visible to the other CTAs of the cluster and to the copy engine.
DG_DEVICE void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// mbarrier.arrive: arrive once.
DG_DEVICE void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mbarrier.arrive on another CTA's barrier at the same offset. Orders nothing beyond the CTA: it says that reads are
/// over, and the asynchronous copy that follows needs no more. (.release.cluster here and .acquire.cluster at the wait
/// halved the kernel's speed.)
DG_DEVICE void barrier_arrive_remote(uint32_t barrier, uint32_t cta_rank) {
    asm volatile(
        "{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %0, %1;\n"
        " mbarrier.arrive.shared::cluster.b64 _, [remote];\n}\n" ::"r"(barrier),
        "r"(cta_rank)
        : "memory");
}

/// mbarrier.arrive.expect_tx: arrive once and promise bytes of incoming copies.
DG_DEVICE void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// mbarrier.try_wait.parity: return once the phase of this parity is over. A fresh barrier passes parity 1.
DG_DEVICE void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n .reg .pred done;\n"
        "again:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        " @done bra finished;\n bra again;\n"
        "finished:\n}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

/// mbarrier.test_wait.parity, again and again: the same where a GPU has no try_wait.
DG_DEVICE void barrier_wait_polling(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n .reg .pred done;\n"
        "again:\n mbarrier.test_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        " @done bra finished;\n bra again;\n"
        "finished:\n}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

/// mbarrier.test_wait.parity: whether the phase of this parity is over, without waiting.
DG_DEVICE bool barrier_passed(uint32_t barrier, uint32_t parity) {
    uint32_t passed;
    asm volatile(
        "{\n .reg .pred done;\n mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        " selp.u32 %0, 1, 0, done;\n}\n"
        : "=r"(passed)
        : "r"(barrier), "r"(parity)
        : "memory");
    return passed != 0;
}

}  // namespace deep_gemm::ptx
