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

DG_DEVICE float4 load_cluster_x4(uint32_t mapped) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(mapped)
                 : "memory");
    return v;
}

}  // namespace deep_gemm::ptx
