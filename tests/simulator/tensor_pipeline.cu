// A block-scaled FP8 product by a pair of CTAs, as SM100 kernels are made: copies, scales, products and the way out
// each have their warps. D = A B^T in FP32, exponents of scales for each row and 32 of K. BUG plants one mistake.
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tcgen05.cuh>

using namespace deep_gemm;

constexpr int kRows = 128, kCols = 128, kHalf = kCols / 2, kTileK = 128, kStepK = 32, kStages = 3;
constexpr int kStageBytes = (kRows + kHalf) * kTileK, kScaleWords = 128;
constexpr int kAccumulators = 2, kScaleColumn = BUG == 16 ? 248 : 256, kScaleColumns = 8;
constexpr int kStoreThreads = 128, kColumns = BUG == 27 ? 48 : BUG == 28 ? 256 : 512;
constexpr uint32_t kLeadersBarrier = 0xfeffffff;  // of a shared-memory address: the same place in the even CTA
constexpr uint16_t kBoth = 3;

struct alignas(64) Map {
    char bytes[128];
};

struct Params {
    Map a, b;
    const uint32_t *scales_a, *scales_b;  // [K block][row], four exponents in a word
    float* d;
    int32_t tiles, k, rows;  // tiles of 256 rows, done one after the other
};

struct Shared {
    char a[kStages][kRows * kTileK], b[kStages][kHalf * kTileK];
    uint32_t scales_a[kStages][kScaleWords], scales_b[kStages][kScaleWords];
    uint64_t full[kStages], raw[kStages], ready[kStages], empty[kStages];
    uint64_t sums_full[kAccumulators], sums_empty[kAccumulators];
    uint32_t tensor_address;
};

struct Ring {
    int stage = 0;
    uint32_t phase = 0;
    __device__ void advance() {
        if (++stage == kStages) stage = 0, phase ^= 1;
    }
};

__device__ uint32_t at(const void* place) { return ptx::shared_address(place); }

__device__ void load_box(const void* to, const Map* map, uint32_t barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2"
        " [%0], [%1, {%3, %4}], [%2];" ::"r"(at(to)),
        "l"(map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

__device__ void load_words(const void* to, const uint32_t* from, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at(to)),
                 "l"(from), "n"(4 * kScaleWords), "r"(barrier)
                 : "memory");
}

__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    ptx::cluster_wait();
}

__device__ void copy_role(const Params& p, Shared& shared, int rank) {
    Ring ring;
    for (int tile = 0; tile < p.tiles; ++tile)
        for (int k = 0; k < p.k; k += kTileK) {
            const int stage = ring.stage, row = 256 * tile + kRows * rank;
            ptx::barrier_wait(at(&shared.empty[stage]), ring.phase ^ 1);
            // Both CTAs' operands count on the leader's barrier; scales on the own one.
            const uint32_t full = at(&shared.full[stage]) & kLeadersBarrier, raw = at(&shared.raw[stage]);
            if (rank == 0)
                ptx::barrier_arrive_expect(at(&shared.full[stage]), BUG == 8 ? kStageBytes : 2 * kStageBytes);
            load_box(shared.a[stage], &p.a, full, k, row);
            load_box(shared.b[stage], &p.b, full, k, kHalf * rank);
            ptx::barrier_arrive_expect(raw, 8 * kScaleWords);
            load_words(shared.scales_a[stage], p.scales_a + k / kTileK * p.rows + row, raw);
            load_words(shared.scales_b[stage], p.scales_b + k / kTileK * kCols, raw);
            ring.advance();
        }
}

// 128 words of a column, to 32 rows of four.
__device__ void transpose(uint32_t* words, int lane) {
    uint32_t mine[4];
    for (int i = 0; i < 4; ++i) mine[i] = words[32 * i + lane];
    __syncwarp();
    for (int i = 0; i < 4; ++i) words[BUG == 13 ? 32 * i + lane : 4 * lane + i] = mine[i];
}

__device__ void scale_role(const Params& p, Shared& shared, int lane) {
    Ring ring;
    for (int tile = 0; tile < p.tiles; ++tile)
        for (int k = 0; k < p.k; k += kTileK) {
            const int stage = ring.stage;
            ptx::barrier_wait(at(&shared.raw[stage]), ring.phase);
            transpose(shared.scales_a[stage], lane);
            transpose(shared.scales_b[stage], lane);
            if (BUG != 5) ptx::fence_for_async_proxy();
            ptx::barrier_arrive_remote(at(&shared.ready[stage]), 0);
            ring.advance();
        }
}

__device__ uint32_t instruction(int scale_id) {
    const uint32_t rows = BUG == 21 ? 128 : 256, cols = BUG == 22 ? 120 : kCols;
    const uint32_t id_b = BUG == 11 ? (scale_id + 1) % 4 : scale_id;
    return cols >> 3 << 17 | 1u << 23 | rows >> 4 << 24 | id_b << 4 | static_cast<uint32_t>(scale_id) << 29;
}

__device__ void multiply_stage(const Params& p, Shared& shared, uint32_t tensor, uint32_t d, int stage, int k) {
    const uint32_t scales_a = tensor + kScaleColumn + kScaleColumns * (BUG == 10 ? 0 : stage), scales_b = scales_a + 4;
    ptx::copy_to_tensor_memory<2>(scales_a, ptx::tensor_descriptor_of_scales(at(shared.scales_a[stage])));
    ptx::copy_to_tensor_memory<2>(scales_b, ptx::tensor_descriptor_of_scales(at(shared.scales_b[stage])));
    const int steps = min(kTileK, p.k - k) / kStepK - (BUG == 15 && k + kTileK > p.k);
    for (int step = 0; step < steps; ++step) {
        const uint64_t version = BUG == 33 ? 1ull << 46 : 0;
        const uint64_t a = ptx::tensor_descriptor(at(shared.a[stage]) + kStepK * step) ^ version;
        const uint64_t b = ptx::tensor_descriptor(at(shared.b[stage]) + kStepK * step);
        ptx::tensor_mma_mxf8f6f4<2>(d, a, b, instruction(step), BUG == 12 ? scales_b : scales_a,
                                    BUG == 12 ? scales_a : scales_b, BUG == 14 || k > 0 || step > 0);
    }
}

__device__ void product_role(const Params& p, Shared& shared, uint32_t tensor, int lane) {
    Ring ring;
    const bool issues = BUG == 29 || lane == 0, commits = BUG == 6 ? lane == 1 : lane == 0;
    for (int tile = 0; tile < p.tiles; ++tile) {
        const int accumulator = tile % kAccumulators, round = tile / kAccumulators;
        if (BUG != 24) ptx::barrier_wait(at(&shared.sums_empty[accumulator]), (round & 1) ^ 1);
        ptx::tensor_fence_after_sync();
        for (int k = 0; k < p.k; k += kTileK) {
            const int stage = ring.stage;
            ptx::barrier_wait(at(&shared.full[stage]), ring.phase);
            if (BUG != 23) ptx::barrier_wait(at(&shared.ready[stage]), ring.phase);
            if (BUG != 1) ptx::tensor_fence_after_sync();
            const uint16_t mask = BUG == 7 ? 1 : kBoth;
            if (BUG == 25 && commits) ptx::commit_tensor_work_multicast<2>(at(&shared.empty[stage]), mask);
            if (issues) multiply_stage(p, shared, tensor, tensor + kCols * accumulator, stage, k);
            if (BUG != 25 && commits) ptx::commit_tensor_work_multicast<2>(at(&shared.empty[stage]), mask);
            __syncwarp();
            ring.advance();
        }
        if (commits) ptx::commit_tensor_work_multicast<2>(at(&shared.sums_full[accumulator]), kBoth);
        __syncwarp();
    }
}

__device__ void store_role(const Params& p, Shared& shared, uint32_t tensor, int rank) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, quarter = BUG == 20 ? warp ^ 1 : warp;
    for (int tile = 0; tile < p.tiles; ++tile) {
        const int accumulator = tile % kAccumulators, round = tile / kAccumulators;
        ptx::barrier_wait(at(&shared.sums_full[accumulator]), BUG == 34 ? (round & 1) ^ 1 : round & 1);
        if (BUG != 2) ptx::tensor_fence_after_sync();
        if (BUG == 32) ptx::barrier_arrive_remote(at(&shared.sums_empty[accumulator]), 0);
        float* row = p.d + (256l * tile + kRows * rank + 32 * warp + lane) * kCols;
        for (int column = 0; column < kCols; column += 16) {
            uint32_t words[16];
            const int first = BUG == 30 ? 504 : kCols * accumulator + column;
            ptx::load_tensor_memory(tensor + (quarter << 21) + first, words);
            if (BUG != 3) ptx::wait_tensor_loads();
            for (int i = 0; i < 16; ++i) row[column + i] = __uint_as_float(words[i]);
        }
        if (BUG != 4) ptx::tensor_fence_before_sync();
        if (BUG != 32) ptx::barrier_arrive_remote(at(&shared.sums_empty[accumulator]), 0);
    }
}

__device__ void init_barriers(Shared& shared) {
    for (int stage = 0; stage < kStages; ++stage) {
        ptx::barrier_init(at(&shared.full[stage]), 1);
        ptx::barrier_init(at(&shared.raw[stage]), 1);
        ptx::barrier_init(at(&shared.ready[stage]), 2 * 32);
        ptx::barrier_init(at(&shared.empty[stage]), 1);
    }
    for (int i = 0; i < kAccumulators; ++i) {
        ptx::barrier_init(at(&shared.sums_full[i]), 1);
        ptx::barrier_init(at(&shared.sums_empty[i]), BUG == 9 ? kStoreThreads : 2 * kStoreThreads);
    }
    ptx::fence_barrier_init();
}

extern "C" __global__ void __launch_bounds__(256) __cluster_dims__(2, 1, 1)
    tensor_pipeline(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = ptx::cluster_cta_rank();
    if (warp == 0 && lane == 0) init_barriers(shared);
    if (warp == 2) {
        if (BUG == 17) ptx::finish_allocating<2>();
        ptx::allocate_tensor_memory<2>(at(&shared.tensor_address), kColumns);
        if (BUG != 17) ptx::finish_allocating<2>();
    }
    if (BUG == 31)
        __syncthreads();
    else
        cluster_sync();
    const uint32_t tensor = ptx::load_shared_int(at(&shared.tensor_address));
    if (warp == 0 && lane == 0) copy_role(p, shared, rank);
    if (warp == 1 && rank == 0) product_role(p, shared, tensor, lane);
    if (warp == 2) scale_role(p, shared, lane);
    if (warp >= 4) store_role(p, shared, tensor, rank);
    __syncwarp();
    if (BUG == 18 && warp == 2) ptx::free_tensor_memory<2>(tensor, kColumns);
    if (BUG == 19 && rank == 0 && warp != 1) return;
    if (BUG == 35)
        __syncthreads();
    else
        cluster_sync();
    if (BUG != 18 && BUG != 26 && warp == 2) ptx::free_tensor_memory<2>(tensor, BUG == 36 ? 256 : kColumns);
}
