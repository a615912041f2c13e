// The chain of one K block at decode: wait for the copies, read scales, multiply, wait, promote.
//
// Weights lie on the 64 rows of wgmma, tokens on its kCols columns, as the library's swapped configs have them. The
// host puts the constants in front: kCols, kWarpgroups, kStriped (1: warpgroups take K blocks in turn, one tile of 64
// rows; 0: each has 64 rows of its own in every K block), kOverlap (the next K block is multiplied while this one is
// promoted), kCopy (stages are copied from the L2 by a producer; 0: what lies in shared memory is multiplied over and
// over, and nothing is waited for).
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/wgmma.cuh>

using namespace deep_gemm;

struct Params {
    const uint8_t* operands;
    int64_t* cycles;  // [CTAs]
    int64_t* begin_ns;
    int64_t* end_ns;
    float* sink;
    int64_t blocks;  // of each warpgroup, at least 4 and even. Not compiled in: ptxas would peel blocks off the loop, and
                     // then run the wgmma one by one (C7514)
};

constexpr int kRows = kStriped ? 64 : 64 * kWarpgroups;
constexpr int kRowBytes = kRows * 128, kColBytes = kCols * 128, kScaleBytes = 512;
constexpr int kStageBytes = kRowBytes + kColBytes, kStagesThatFit = 220000 / (kStageBytes + kScaleBytes);
constexpr int kStages = kStagesThatFit >= 16 ? 16 : kStagesThatFit >= 8 ? 8 : 4;  // a power of two: cheap to divide by
constexpr int kReaders = kStriped ? 1 : kWarpgroups;  // warpgroups that read a stage
static_assert(kStages * (kStageBytes + kScaleBytes) + 1024 + 512 <= 232448, "the stages do not fit shared memory");
static_assert(kColBytes % 1024 == 0);

__device__ __forceinline__ void bulk_copy(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
        "l"(source), "r"(bytes), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ int64_t nanoseconds() {
    int64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/// A K block between its start and its promotion.
struct Block {
    float partial[kCols / 2];
    float row;
    float2 cols[kCols / 8];
    int stage;
};

struct Chain {
    uint32_t base, scales, barriers;
    int warpgroup;
    float total[kCols / 2] = {};

    __device__ __forceinline__ uint32_t full(int stage) const { return barriers + stage * 16; }
    __device__ __forceinline__ uint32_t empty(int stage) const { return barriers + stage * 16 + 8; }

    /// Wait for a K block, read its scales, start its multiplication.
    __device__ __forceinline__ void start(Block& x, int own_block) const {
        const int block = kStriped ? own_block * kWarpgroups + warpgroup : own_block;
        x.stage = block % kStages;
        if constexpr (kCopy) ptx::barrier_wait(full(x.stage), block / kStages % 2);
        x.row = ptx::load_shared(scales + x.stage * kScaleBytes + 256);
#pragma unroll
        for (int i = 0; i < kCols / 8; ++i)
            x.cols[i] = ptx::load_shared_x2(scales + x.stage * kScaleBytes + i * 32 + threadIdx.x % 4 * 8);
        const uint32_t at = base + x.stage * kStageBytes;
        const uint64_t rows = ptx::wgmma_descriptor(at + (kStriped ? 0 : warpgroup * 8192)),
                       cols = ptx::wgmma_descriptor(at + kRowBytes);
#pragma unroll
        for (int i = 0; i < kCols / 2; ++i) ptx::pin(x.partial[i]);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) ptx::Wgmma<kCols>::e4m3(x.partial, rows + 2 * step, cols + 2 * step, step);
        ptx::wgmma_commit();
#pragma unroll
        for (int i = 0; i < kCols / 2; ++i) ptx::pin(x.partial[i]);
    }

    /// Wait for its multiplication, let its stage go, promote.
    template <int kPending>
    __device__ __forceinline__ void finish(Block& x) {
        ptx::wgmma_wait<kPending>();
#pragma unroll
        for (int i = 0; i < kCols / 2; ++i) ptx::pin(x.partial[i]);
        if constexpr (kCopy) {
            __syncwarp();
            if (threadIdx.x % 32 == 0) ptx::barrier_arrive(empty(x.stage));
        }
#pragma unroll
        for (int i = 0; i < kCols / 8; ++i) {
            const float even = x.row * x.cols[i].x, odd = x.row * x.cols[i].y;
            total[4 * i] = __fmaf_rn(x.partial[4 * i], even, total[4 * i]);
            total[4 * i + 1] = __fmaf_rn(x.partial[4 * i + 1], odd, total[4 * i + 1]);
            total[4 * i + 2] = __fmaf_rn(x.partial[4 * i + 2], even, total[4 * i + 2]);
            total[4 * i + 3] = __fmaf_rn(x.partial[4 * i + 3], odd, total[4 * i + 3]);
        }
    }

    /// Two blocks by name: registers cannot be indexed. Left in the middle, as the library's main loop is: ptxas then
    /// keeps the wgmma of two blocks under way at once.
    __device__ __forceinline__ void run_overlapped(int blocks) {
        Block even, odd;
        int next = 0;
        start(even, next++);
        for (;; blocks -= 2) {
            if (blocks == 1) return finish<0>(even);
            start(odd, next++);
            finish<1>(even);
            if (blocks == 2) return finish<0>(odd);
            start(even, next++);
            finish<1>(odd);
        }
    }
};

extern "C" __global__ void __launch_bounds__(kWarpgroups * 128 + 32, 1)
    decode_chain(const __grid_constant__ Params params) {
    extern __shared__ uint8_t dynamic[];
    Chain chain;
    chain.base = (ptx::shared_address(dynamic) + 1023) & ~1023u;
    chain.scales = chain.base + kStages * kStageBytes;
    chain.barriers = chain.scales + kStages * kScaleBytes;
    const int blocks = params.blocks;
    chain.warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) {
            ptx::barrier_init(chain.full(stage), 1);
            ptx::barrier_init(chain.empty(stage), kReaders * 4);
        }
        ptx::fence_barrier_init();
    }
    for (int i = threadIdx.x * 4; i < kStages * kStageBytes; i += blockDim.x * 4)
        ptx::store_shared(chain.base + i, *reinterpret_cast<const float*>(params.operands + i));
    for (int i = threadIdx.x; i < kStages * kScaleBytes / 4; i += blockDim.x)
        ptx::store_shared(chain.scales + i * 4, 1.0f + i * 1e-4f);
    ptx::fence_for_async_proxy();
    __syncthreads();
    const int64_t begin = ptx::clock_cycles();
    if (threadIdx.x == 0) params.begin_ns[blockIdx.x] = nanoseconds();
    if (chain.warpgroup == kWarpgroups) {
        if (kCopy && threadIdx.x == kWarpgroups * 128) {
            const uint8_t* source = params.operands + blockIdx.x % 64 * (kStages * kStageBytes);
#pragma unroll 1
            for (int block = 0; block < blocks * (kStriped ? kWarpgroups : 1); ++block) {
                const int stage = block % kStages;
                ptx::barrier_wait(chain.empty(stage), (block / kStages + 1) % 2);
                ptx::barrier_arrive_expect(chain.full(stage), kStageBytes + kCols * 4);
                const uint32_t at = chain.base + stage * kStageBytes;
                const uint8_t* from = source + stage * kStageBytes;
                bulk_copy(at, from, kRowBytes, chain.full(stage));
                bulk_copy(at + kRowBytes, from + kRowBytes, kColBytes, chain.full(stage));
                bulk_copy(chain.scales + stage * kScaleBytes, from, kCols * 4, chain.full(stage));
            }
        }
    } else {
        if constexpr (!kOverlap) {
#pragma unroll 1
            for (int block = 0; block < blocks; ++block) {
                Block x;
                chain.start(x, block);
                chain.finish<0>(x);
            }
        } else {
            chain.run_overlapped(blocks);
        }
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kCols / 2; ++i) sum += chain.total[i];
        if (sum == 1234.5f) params.sink[0] = sum;  // never: keeps the sums alive
        if (threadIdx.x == 0) {
            params.cycles[blockIdx.x] = ptx::clock_cycles() - begin;
            params.end_ns[blockIdx.x] = nanoseconds();
        }
    }
}
