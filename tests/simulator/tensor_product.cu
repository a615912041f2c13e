// One product by tcgen05 from operands that the host has laid out: 32 bytes of K, `rounds` times into the same D. The
// test defines CTAS, MULTIPLY (one of the ptx functions), SCALED and A_IN_TENSOR (the kind, where A goes there first).
// HANDED_OVER: another warp's thread issues the copies of scales, or the first product where there are none; the
// threads are ordered by FENCE_BEFORE, WAITS and FENCE_AFTER, each of which can be left out.
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tcgen05.cuh>

using namespace deep_gemm;

constexpr int kImageBytes = 32768, kScaleBytes = 1024, kColumns = 512;
constexpr int kScalesA = 256, kScalesB = 264, kTensorA = 288;  // columns; D begins at column 0

struct Params {
    const uint32_t *a, *b, *scales_a, *scales_b;  // of each CTA, one after the other
    uint32_t* d;                                  // 128 lanes of 256 columns of each CTA
    uint64_t a_descriptor, b_descriptor;          // without the address
    uint32_t instruction;
    int32_t columns, used_lanes, rounds;  // used_lanes: of each 32
};

struct Shared {
    char a[kImageBytes], b[kImageBytes], scales_a[kScaleBytes], scales_b[kScaleBytes];
    uint64_t done, handed_over;
    uint32_t tensor_address;
};

__device__ uint64_t at(uint64_t descriptor, const void* place) {
    return descriptor | (ptx::shared_address(place) & 0x3ffff) >> 4;
}

__device__ void copy(const void* to, const uint32_t* from, int bytes) {
    for (int word = threadIdx.x; word < bytes / 4; word += 128)
        ptx::store_shared_int(ptx::shared_address(to) + 4 * word, from[word]);
}

__device__ void sync_all() {
    __syncthreads();
    if (CTAS == 2) {
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        ptx::cluster_wait();
    }
}

#ifdef A_IN_TENSOR
// A's row of this lane: 32 bytes in eight columns.
__device__ void store_a(uint32_t address, const uint32_t* row) {
    for (int half = 0; half < 2; ++half) {
        const uint32_t words[4] = {row[4 * half], row[4 * half + 1], row[4 * half + 2], row[4 * half + 3]};
        ptx::store_tensor_memory(address + 4 * half, words);
    }
    ptx::wait_tensor_stores();
    ptx::tensor_fence_before_sync();
}

__device__ void multiply_from_tensor(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction, int accumulate) {
    uint32_t disabled[4] = {DISABLED};
    for (auto& lanes : disabled) lanes = accumulate ? lanes : 0;
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %4, 0;\n tcgen05.mma.cta_group::1.kind::" A_IN_TENSOR
                 " [%0], [%1], %2, %3, {%5, %6, %7, %8}, p;\n}\n" ::"r"(d),
                 "r"(a), "l"(b), "r"(instruction), "r"(accumulate), "r"(disabled[0]), "r"(disabled[1]),
                 "r"(disabled[2]), "r"(disabled[3])
                 : "memory");
}
#endif

__device__ void commit(const Shared& shared) {
    if (CTAS == 2)
        ptx::commit_tensor_work_multicast<CTAS>(ptx::shared_address(&shared.done), 3);
    else
        ptx::commit_tensor_work<CTAS>(ptx::shared_address(&shared.done));
}

__device__ void copy_scales(const Shared& shared, uint32_t d) {
    for (int half = 0; half < 2; ++half) {
        ptx::copy_to_tensor_memory<CTAS>(d + kScalesA + 4 * half,
                                         ptx::tensor_descriptor_of_scales(ptx::shared_address(shared.scales_a) +
                                                                          512 * half));
        ptx::copy_to_tensor_memory<CTAS>(d + kScalesB + 4 * half,
                                         ptx::tensor_descriptor_of_scales(ptx::shared_address(shared.scales_b) +
                                                                          512 * half));
    }
}

__device__ void multiply(const Params& p, const Shared& shared, uint32_t d, int first, int end) {
    const uint64_t a = at(p.a_descriptor, shared.a), b = at(p.b_descriptor, shared.b);
    for (int round = first; round < end; ++round) {
#if SCALED
        ptx::MULTIPLY<CTAS>(d, a, b, p.instruction, d + kScalesA, d + kScalesB, round > 0);
#elif defined(A_IN_TENSOR)
        multiply_from_tensor(d, d + kTensorA, b, p.instruction, round > 0);
#else
        ptx::MULTIPLY<CTAS>(d, a, b, p.instruction, round > 0);
#endif
    }
}

__device__ void issue(const Params& p, const Shared& shared, uint32_t d) {
    const uint32_t handed_over = ptx::shared_address(&shared.handed_over);
    const bool helps = threadIdx.x == 32;
    if (HANDED_OVER == 0 || helps) {
        if (SCALED) copy_scales(shared, d);
        if (HANDED_OVER && !SCALED) multiply(p, shared, d, 0, 1);
    }
    if (helps) {
        if (FENCE_BEFORE) ptx::tensor_fence_before_sync();
        ptx::barrier_arrive(handed_over);
    } else {
        if (HANDED_OVER && WAITS) ptx::barrier_wait(handed_over, 0);
        if (HANDED_OVER && FENCE_AFTER) ptx::tensor_fence_after_sync();
        multiply(p, shared, d, HANDED_OVER && !SCALED, p.rounds);
    }
    commit(shared);
}

extern "C" __global__ void __launch_bounds__(128) tensor_product(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const int cta = CTAS == 2 ? ptx::cluster_cta_rank() : 0;
    if (threadIdx.x < 32) ptx::allocate_tensor_memory<CTAS>(ptx::shared_address(&shared.tensor_address), kColumns);
    if (threadIdx.x == 0) {
        ptx::barrier_init(ptx::shared_address(&shared.done), 1 + HANDED_OVER);
        ptx::barrier_init(ptx::shared_address(&shared.handed_over), 1);
        ptx::fence_barrier_init();
    }
    copy(shared.a, p.a + cta * kImageBytes / 4, kImageBytes);
    copy(shared.b, p.b + cta * kImageBytes / 4, kImageBytes);
    copy(shared.scales_a, p.scales_a + cta * kScaleBytes / 4, kScaleBytes);
    copy(shared.scales_b, p.scales_b + cta * kScaleBytes / 4, kScaleBytes);
    ptx::fence_for_async_proxy();
    sync_all();
    const uint32_t d = ptx::load_shared_int(ptx::shared_address(&shared.tensor_address));
    const uint32_t lanes = (threadIdx.x & ~31u) << 16;
#ifdef A_IN_TENSOR
    store_a(d + kTensorA + lanes, p.a + 8 * threadIdx.x);
    sync_all();
    ptx::tensor_fence_after_sync();
#endif
    if ((threadIdx.x == 0 || (HANDED_OVER && threadIdx.x == 32)) && cta == 0) issue(p, shared, d);
    __syncwarp();
    ptx::barrier_wait(ptx::shared_address(&shared.done), 0);
    ptx::tensor_fence_after_sync();
    for (int column = 0; column < p.columns; column += 4) {
        uint32_t words[4];
        ptx::load_tensor_memory(d + lanes + column, words);
        ptx::wait_tensor_loads();
        if (threadIdx.x % 32 < p.used_lanes)
            for (int i = 0; i < 4; ++i) p.d[(128 * cta + threadIdx.x) * 256 + column + i] = words[i];
    }
    ptx::tensor_fence_before_sync();
    sync_all();
    if (threadIdx.x < 32) {
        ptx::finish_allocating<CTAS>();
        ptx::free_tensor_memory<CTAS>(d, kColumns);
    }
}
