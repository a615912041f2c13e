// Clusters: CTAs that run at the same time on one GPC and see each other's shared memory.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

DG_DEVICE uint32_t cluster_cta_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/// barrier.cluster.arrive + wait: all threads of all CTAs; shared-memory writes before it are visible after it.
DG_DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// mapa: the address of the same offset in another CTA's shared memory.
DG_DEVICE uint32_t map_to_cta(uint32_t address, uint32_t cta_rank) {
    uint32_t mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(cta_rank));
    return mapped;
}

DG_DEVICE void store_cluster_x4(uint32_t mapped, float a, float b, float c, float d) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(mapped), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

/// mbarrier.arrive.release.cluster on another CTA's barrier: what this warp wrote to that CTA is visible to who waits for it.
DG_DEVICE void barrier_arrive_cluster(uint32_t barrier, uint32_t cta_rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(map_to_cta(barrier, cta_rank)) : "memory");
}

/// mbarrier.try_wait.parity.acquire.cluster: the other side of it.
DG_DEVICE void barrier_wait_cluster(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n .reg .pred done;\n"
        "again:\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        " @done bra finished;\n bra again;\n"
        "finished:\n}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

}  // namespace deep_gemm::ptx
