// Clusters: CTAs that run at the same time on one GPC and see each other's shared memory.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

DG_DEVICE uint32_t cluster_cta_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/// barrier.cluster.arrive, relaxed: orders no memory access, except initialisations of barriers that a
/// fence.mbarrier_init follows. To release the others too, a thread would have to wait for all its writes to memory.
DG_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

/// barrier.cluster.arrive: and what this thread wrote before is seen by those who wait.
DG_DEVICE void cluster_arrive_release() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

/// barrier.cluster.wait: until all threads of all CTAs have arrived.
DG_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/// mapa: the address of the same offset in another CTA's shared memory.
DG_DEVICE uint32_t map_to_cta(uint32_t address, uint32_t cta_rank) {
    uint32_t mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(cta_rank));
    return mapped;
}

/// st.async: 16 bytes, or 4, into a CTA's shared memory, counted on a barrier of that CTA as a copy is: the one who
/// waits there sees them.
DG_DEVICE void store_cluster_async(uint32_t mapped, float a, float b, float c, float d, uint32_t mapped_barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(mapped),
        "f"(a), "f"(b), "f"(c), "f"(d), "r"(mapped_barrier)
        : "memory");
}
DG_DEVICE void store_cluster_async(uint32_t mapped, float value, uint32_t mapped_barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(mapped),
                 "f"(value), "r"(mapped_barrier)
                 : "memory");
}
DG_DEVICE void store_cluster_async(uint32_t mapped, int32_t a, int32_t b, int32_t c, int32_t d,
                                   uint32_t mapped_barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(mapped),
        "r"(a), "r"(b), "r"(c), "r"(d), "r"(mapped_barrier)
        : "memory");
}

}  // namespace deep_gemm::ptx
