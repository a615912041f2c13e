// How fast tcgen05.mma goes by itself: one thread issues four K steps of a stage over and over, of random operands that
// lie in shared memory, into two accumulators in turn, as the GEMM's main loop does.
//
// The host puts in front: MULTIPLY(sums, rows, cols, instruction, scales, accumulate), kCtas, kCols, kStages (of
// operands, taken in turn).
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tcgen05.cuh>

using namespace deep_gemm;

struct Params {
    int64_t* cycles;  // [CTAs]
    int64_t* begin_ns;
    int64_t* end_ns;
    int64_t blocks;       // of four products
    int64_t instruction;  // descriptor
    int64_t scale_word;   // of all rows and columns
};

constexpr int kRows = 128, kRowBytes = 128, kOwnCols = kCols / kCtas;
constexpr int kRowsBytes = kRows * kRowBytes, kStageBytes = kRowsBytes + (kOwnCols + 7) / 8 * 8 * kRowBytes;
constexpr int kScaleColumns = 16;  // of tensor memory: of 128 rows, and of up to 256 columns, four words each
constexpr int kSteps = 4, kColumns = 512;
constexpr bool kTwo = 2 * kCols + kScaleColumns <= kColumns;

__device__ __forceinline__ int64_t nanoseconds() {
    int64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ __forceinline__ void sync_all() {
    if constexpr (kCtas == 1) {
        __syncthreads();
    } else {
        ptx::cluster_arrive_release();
        ptx::cluster_wait();
    }
}

/// Bytes without those that some format reads as infinite or NaN: sums must not saturate to one value, which would cost
/// less power.
__device__ void fill(uint32_t base) {
    uint32_t state = threadIdx.x * 2654435761u + blockIdx.x * 40503u + 1;
    for (int offset = threadIdx.x * 4; offset < kStages * kStageBytes; offset += blockDim.x * 4) {
        state = state * 1664525u + 1013904223u;
        ptx::store_shared_int(base + offset, static_cast<int32_t>(state & 0xbfbfbfbfu));
    }
    ptx::fence_for_async_proxy();
}

extern "C" __global__ void __launch_bounds__(128, 1) tensor_rates(const __grid_constant__ Params params) {
    extern __shared__ uint8_t dynamic[];
    const uint32_t base = (ptx::shared_address(dynamic) + 1023) & ~1023u;
    const uint32_t barrier = base + kStages * kStageBytes, address = barrier + 8;
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    const bool leads = kCtas == 1 || ptx::cluster_cta_rank() == 0;
    if (threadIdx.x == 0) {
        ptx::barrier_init(barrier, 1);
        ptx::fence_barrier_init();
    }
    fill(base);
    sync_all();
    if (warp == 0) {
        ptx::allocate_tensor_memory<kCtas>(address, kColumns);
        ptx::finish_allocating<kCtas>();
    }
    sync_all();
    const uint32_t sums = static_cast<uint32_t>(ptx::load_shared_int(address));
    const uint32_t scales = sums + kColumns - kScaleColumns;
    const auto word = static_cast<uint32_t>(params.scale_word);
    const uint32_t words[4] = {word, word, word, word};
    for (int column = 0; column < kScaleColumns; column += 4)
        ptx::store_tensor_memory(scales + column + (static_cast<uint32_t>(warp) << 21), words);
    ptx::wait_tensor_stores();
    ptx::tensor_fence_before_sync();
    sync_all();
    ptx::tensor_fence_after_sync();

    const int64_t begin = ptx::clock_cycles();
    if (threadIdx.x == 0) params.begin_ns[blockIdx.x] = nanoseconds();
    if (warp == 0 && leads) {
        int stage = 0;
#pragma unroll 1
        for (int64_t block = 0; block < params.blocks; ++block) {
            if (!ptx::elect_one()) continue;
            const uint64_t rows = ptx::tensor_descriptor(base + stage * kStageBytes),
                           cols = ptx::tensor_descriptor(base + stage * kStageBytes + kRowsBytes);
            const uint32_t into = sums + (kTwo && block % 2 != 0 ? kCols : 0);
#pragma unroll
            for (int step = 0; step < kSteps; ++step)
                MULTIPLY(into, rows + step * 2, cols + step * 2, static_cast<uint32_t>(params.instruction), scales,
                         block > 1 || step > 0);
            stage = stage + 1 == kStages ? 0 : stage + 1;
        }
        if (ptx::elect_one()) ptx::commit_tensor_work<kCtas>(barrier);
        ptx::barrier_wait(barrier, 0);
    }
    __syncwarp();
    if (threadIdx.x == 0) {
        params.cycles[blockIdx.x] = ptx::clock_cycles() - begin;
        params.end_ns[blockIdx.x] = nanoseconds();
    }
    sync_all();
    if (warp == 0) ptx::free_tensor_memory<kCtas>(sums, kColumns);
}
