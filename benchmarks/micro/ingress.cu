// How fast copies bring operands into an SM: a producer keeps kSlots boxes of kBoxBytes under way, a consumer only waits
// for them and lets them go.
//
// The host puts the constants in front: kBoxBytes, kSlots, kCluster (CTAs that each copy a part of every box, for all
// of them), kTensor (1: boxes of 128-byte rows through a tensor map with a 128-byte swizzle, as the GEMM's; 0: plain
// bulk copies).
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tma.cuh>

using namespace deep_gemm;

struct TensorMap {
    alignas(64) uint64_t words[16];
};

struct Params {
    const uint8_t* data;
    int64_t* cycles;  // [CTAs]
    int64_t* begin_ns;
    int64_t* end_ns;
    int64_t boxes;           // that each cluster copies
    int64_t sharers;         // clusters that read the same data: neighbours or, where negative, far apart
    int64_t boxes_per_line;  // boxes along a row of the matrix; of a region, for plain copies
    int64_t lines;           // rows of boxes that a cluster reads before it starts again
    TensorMap map;
};

constexpr int kPartBytes = kBoxBytes / kCluster;
static_assert(kPartBytes % 1024 == 0, "a part is whole groups of eight rows, and a multiple of 16 bytes");
static_assert(kSlots * kBoxBytes + 1024 + kSlots * 16 <= 232448, "the slots do not fit shared memory");
static_assert(!kTensor || kPartBytes / 128 <= 256, "a box has at most 256 rows");

__device__ __forceinline__ int64_t nanoseconds() {
    int64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ __forceinline__ void bulk_copy(uint32_t destination, const void* source, uint32_t barrier) {
    if constexpr (kCluster == 1)
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
            "l"(source), "r"(kPartBytes), "r"(barrier)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
            " [%0], [%1], %2, [%3], %4;" ::"r"(destination),
            "l"(source), "r"(kPartBytes), "r"(barrier), "h"(static_cast<uint16_t>((1 << kCluster) - 1))
            : "memory");
}

__device__ __forceinline__ void tensor_copy(uint32_t destination, const TensorMap* map, uint32_t barrier, int x, int y) {
    if constexpr (kCluster == 1)
        ptx::load_box(destination, map, barrier, x, y, 0, ptx::CacheHint::normal);
    else
        ptx::load_box_multicast(destination, map, barrier, x, y, 0, (1 << kCluster) - 1, ptx::CacheHint::normal);
}

extern "C" __global__ void __launch_bounds__(64, 1) ingress(const __grid_constant__ Params params) {
    extern __shared__ uint8_t dynamic[];
    const uint32_t base = (ptx::shared_address(dynamic) + 1023) & ~1023u;
    const uint32_t barriers = base + kSlots * kBoxBytes;
    const auto full = [&](int slot) { return barriers + slot * 16; };
    const auto empty = [&](int slot) { return barriers + slot * 16 + 8; };
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < kSlots; ++slot) {
            ptx::barrier_init(full(slot), 1);
            ptx::barrier_init(empty(slot), kCluster);
        }
        ptx::fence_barrier_init();
    }
    if constexpr (kCluster > 1) __cluster_barrier_arrive(), __cluster_barrier_wait();
    __syncthreads();
    const int64_t begin = ptx::clock_cycles();
    if (threadIdx.x == 0) params.begin_ns[blockIdx.x] = nanoseconds();
    // Elected lanes: for a lane that ptxas does not know to be the only one, it makes each copy a loop over lanes.
    if (threadIdx.x / 32 == 0 && ptx::elect_one()) {  // copies
        const int part = kCluster == 1 ? 0 : blockIdx.x % kCluster;
        const int clusters = gridDim.x / kCluster, cluster = blockIdx.x / kCluster, sharers = abs(int(params.sharers));
        const int regions = (clusters + sharers - 1) / sharers,
                  region = params.sharers < 0 ? cluster % regions : cluster / sharers;
        const int boxes = params.boxes, boxes_per_line = params.boxes_per_line, lines = params.lines;
        int along = 0, line = 0;
#pragma unroll 1
        for (int box = 0, slot = 0, phase = 1; box < boxes; ++box) {
            ptx::barrier_wait(empty(slot), phase);
            ptx::barrier_arrive_expect(full(slot), kBoxBytes);
            const uint32_t at = base + slot * kBoxBytes + part * kPartBytes;
            if constexpr (kTensor)
                tensor_copy(at, &params.map, full(slot), along * 128,
                            (line * regions + region) * (kBoxBytes / 128) + part * (kPartBytes / 128));
            else
                bulk_copy(at, params.data + (int64_t{line * regions + region} * boxes_per_line + along) * kBoxBytes +
                                  part * kPartBytes,
                          full(slot));
            if (++along == boxes_per_line) along = 0, line = line + 1 == lines ? 0 : line + 1;
            if (++slot == kSlots) slot = 0, phase ^= 1;
        }
    } else if (threadIdx.x / 32 == 1 && ptx::elect_one()) {  // waits, in order, and lets go
        const int boxes = params.boxes;
#pragma unroll 1
        for (int box = 0, slot = 0, phase = 0; box < boxes; ++box) {
            ptx::barrier_wait(full(slot), phase);
            if constexpr (kCluster == 1)
                ptx::barrier_arrive(empty(slot));
            else
                for (int cta = 0; cta < kCluster; ++cta) ptx::barrier_arrive_remote(empty(slot), cta);
            if (++slot == kSlots) slot = 0, phase ^= 1;
        }
        params.cycles[blockIdx.x] = ptx::clock_cycles() - begin;
        params.end_ns[blockIdx.x] = nanoseconds();
    }
    if constexpr (kCluster > 1) {
        __syncwarp();
        __cluster_barrier_arrive(), __cluster_barrier_wait();  // a CTA that has gone cannot be arrived at
    }
}
