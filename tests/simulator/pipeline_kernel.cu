// A small, complete warp-specialised FP8 GEMM for testing the simulator: TMA loads, a ring of mbarriers, wgmma, TMA store.
//
// D[M, N] (bf16) = A[M, K] (e4m3) * B[N, K]^T (e4m3). Correct with BUG=0; each other value of BUG plants one mistake.
// A cluster of two CTAs shares B by multicast. Persistent: a cluster takes tiles until none are left.
#ifndef BUG
#define BUG 0
#endif

using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;

struct alignas(64) TensorMap { uint64_t words[16]; };
struct Params {
    TensorMap a, b, d;
    uint32_t m, n, k;
    uint32_t canary;
    float* row_sums;  // one float a row of D: plain global stores beside the TMA store
};

constexpr int kTileM = 128, kTileN = 64, kTileK = 128, kStages = 3, kCluster = 2;
constexpr int kStageBytesA = kTileM * kTileK, kStageBytesB = kTileN * kTileK;
constexpr int kMathThreads = 256;

struct __align__(1024) Shared {
    uint8_t a[kStages][kStageBytesA];
    uint8_t b[kStages][kStageBytesB];
    uint16_t d[kTileM * kTileN];
    uint64_t full[kStages], empty[kStages];
};

__device__ __forceinline__ uint32_t smem_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void barrier_init(uint64_t* bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(bar)), "r"(count));
}
__device__ __forceinline__ void barrier_wait(uint64_t* bar, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(
            smem_address(bar)), "r"(parity) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive_at(uint64_t* bar, uint32_t cta) {
    asm volatile(
        "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(smem_address(bar)), "r"(cta) : "memory");
}
__device__ __forceinline__ void tma_load(void* dst, const TensorMap* map, uint64_t* bar, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            smem_address(dst)), "l"(map), "r"(smem_address(bar)), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void tma_load_multicast(void* dst, const TensorMap* map, uint64_t* bar, int x, int y, uint16_t mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], "
        "[%2], %5;" ::"r"(smem_address(dst)), "l"(map), "r"(smem_address(bar)), "r"(x), "r"(y), "h"(mask) : "memory");
}
__device__ __forceinline__ uint64_t descriptor(const void* p) {
    // K-major, 128-byte swizzle, groups of eight rows 1024 bytes apart.
    return uint64_t((smem_address(p) & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t((BUG == 20 ? 512 : 1024) >> 4) << 32 |
           uint64_t(BUG == 11 ? 2 : 1) << 62;
}
__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ bool elect() {
    uint32_t chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
    return chosen;
}
__device__ __forceinline__ void wgmma(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(accumulate));
}

extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(kCluster, 1, 1)
    pipeline_kernel(const __grid_constant__ Params params) {
    extern __shared__ __align__(1024) uint8_t memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t rank = cluster_rank();

    if (warp == 0 && elect()) {
        for (int s = 0; s < kStages; ++s) {
            barrier_init(&shared.full[s], BUG == 1 ? 2 : 1);
            barrier_init(&shared.empty[s], BUG == 2 ? kCluster * 8 - 1 : BUG == 3 ? kCluster * 8 + 1 : kCluster * 8);
        }
        if (BUG != 4) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (BUG == 5)
        __syncthreads();
    else
        cluster_sync();

    const int tiles_m = (params.m + kTileM - 1) / kTileM, tiles_n = (params.n + kTileN - 1) / kTileN;
    const int k_blocks = (params.k + kTileK - 1) / kTileK;
    // Both CTAs of a cluster work on neighbouring row blocks and one column block, so they share B.
    const int pairs = (tiles_m + 1) / 2 * tiles_n, clusters = gridDim.x / kCluster;
    int stage = 0, phase = 0;

    if (threadIdx.x >= kMathThreads) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(40));
        if (warp == kMathThreads / 32 && elect()) {
            for (int pair = blockIdx.x / kCluster; pair < pairs; pair += clusters) {
                const int m = ((pair / tiles_n) * 2 + rank) * kTileM, n = (pair % tiles_n) * kTileN;
                for (int kb = 0; kb < k_blocks; ++kb) {
                    if (BUG != 6) barrier_wait(&shared.empty[stage], BUG == 7 ? phase : phase ^ 1);
                    const int bytes = kStageBytesA + kStageBytesB;
                    barrier_expect(&shared.full[stage], BUG == 8 ? bytes - 1024 : BUG == 9 ? bytes + 1024 : bytes);
                    tma_load(shared.a[stage], &params.a, &shared.full[stage], kb * kTileK, m);
                    const int half = kTileN / kCluster;
                    tma_load_multicast(shared.b[stage] + rank * half * kTileK, &params.b, &shared.full[stage], kb * kTileK,
                                       n + rank * half, BUG == 10 ? 1 << rank : 3);
                    if (++stage == kStages) stage = 0, phase ^= BUG == 21 ? 0 : 1;
                }
            }
            // The other CTA's math warps still arrive on this CTA's barriers: leave only when they have.
            if (BUG != 12)
                for (int s = 0; s < kStages; ++s) {
                    barrier_wait(&shared.empty[stage], phase ^ 1);
                    if (++stage == kStages) stage = 0, phase ^= 1;
                }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(BUG == 22 ? 248 : 232));
        const int group = threadIdx.x / 128;
        for (int pair = blockIdx.x / kCluster; pair < pairs; pair += clusters) {
            const int m = ((pair / tiles_n) * 2 + rank) * kTileM, n = (pair % tiles_n) * kTileN;
            float d[32];
            for (int kb = 0; kb < k_blocks; ++kb) {
                if (BUG != 13) barrier_wait(&shared.full[stage], BUG == 14 ? phase ^ 1 : phase);
                if (BUG != 15) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                for (int k = 0; k < kTileK / 32; ++k)
                    wgmma(d, descriptor(shared.a[stage] + group * 64 * kTileK) + (k * 32 >> 4),
                          descriptor(shared.b[stage]) + (k * (BUG == 16 ? 48 : 32) >> 4), kb > 0 || k > 0);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                if (BUG != 17) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BUG == 18 ? 1 : 0) : "memory");
                if (BUG != 19 && lane < kCluster) barrier_arrive_at(&shared.empty[stage], BUG == 23 ? rank : lane);
                if (++stage == kStages) stage = 0, phase ^= 1;
            }
            if (BUG == 17) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (BUG == 18) asm volatile("" : "+f"(d[0]));
            // The copy engine may still read the last tile: reuse the buffer only when it has.
            if (BUG != 24 && threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            if (BUG != 25) asm volatile("bar.sync 1, 256;" ::: "memory");
            float sum[2] = {0, 0};
            const int row = group * 64 + (warp % 4) * 16 + lane / 4;
            for (int i = 0; i < 32; i += 2) {
                const int r = row + 8 * ((i >> 1) & 1), c = 8 * (i / 4) + 2 * (lane % 4);
                if (BUG == 26 && i == 30 && lane == 5) continue;
                uint32_t packed;
                asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(d[i + 1]), "f"(d[i]));
                // 64 columns of bf16 are one 128-byte row: the store's tensor map swizzles, so swizzle here too.
                const uint32_t offset = (r * 128 + c * 2) ^ (BUG == 27 ? 0 : (r % 8) << 4);
                *reinterpret_cast<uint32_t*>(reinterpret_cast<uint8_t*>(shared.d) + offset) = packed;
                sum[(i >> 1) & 1] += d[i] + d[i + 1];
            }
            if (BUG != 28) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            if (BUG != 29) asm volatile("bar.sync 1, %0;" ::"n"(BUG == 30 ? 288 : 256) : "memory");
            if (threadIdx.x == 0) {
                asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&params.d), "r"(n),
                             "r"(m), "r"(smem_address(shared.d)) : "memory");
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }
            for (int h = 0; h < 2; ++h) {
                sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 1);
                sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 2);
                const int r = m + row + 8 * h;
                if (lane % 4 == 0 && (r < params.m || BUG == 31)) atomicAdd(params.row_sums + r, sum[h]);
            }
            if (BUG == 32 && warp == 7) return;
        }
        if (BUG != 33 && threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}
