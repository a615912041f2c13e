// What ordinary instructions cost beside wgmma, and wgmma beside them: one warpgroup multiplies without a pause, another
// one runs a loop of one kind of instruction on registers of its own, as promotion does.
//
// The host puts the constants in front: kKind (an index of KINDS in beside_wgmma.py).
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/wgmma.cuh>

using namespace deep_gemm;

struct Params {
    int64_t* wgmma_cycles;  // [CTAs], of all K blocks
    int64_t* loop_cycles;   // [CTAs], of all rounds
    float* sink;
    int64_t blocks;  // of 128 along K; 0: nothing is multiplied
    int64_t rounds;  // of kInstructions each
};

constexpr int kCols = 128, kInstructions = 48;

__device__ __forceinline__ void instruction(float& total, float partial, float scale) {
    uint32_t& bits = reinterpret_cast<uint32_t&>(total);
    if constexpr (kKind == 1 || kKind == 2)
        asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(total) : "f"(partial), "f"(scale));
    if constexpr (kKind == 3) asm volatile("fma.rn.f32 %0, %1, 0f3F8CCCCD, %0;" : "+f"(total) : "f"(partial));
    if constexpr (kKind == 4) asm volatile("mul.rn.f32 %0, %0, %1;" : "+f"(total) : "f"(scale));
    if constexpr (kKind == 5) asm volatile("xor.b32 %0, %0, %1;" : "+r"(bits) : "r"(__float_as_uint(partial)));
}

extern "C" __global__ void __launch_bounds__(256, 1) beside_wgmma(const __grid_constant__ Params params) {
    extern __shared__ uint8_t dynamic[];
    const uint32_t base = (ptx::shared_address(dynamic) + 1023) & ~1023u;
    for (int i = threadIdx.x * 4; i < 65536; i += blockDim.x * 4) ptx::store_shared(base + i, 0.37f * (i % 977));
    ptx::fence_for_async_proxy();
    __syncthreads();
    float sum = 0;
    if (__shfl_sync(0xffffffff, threadIdx.x / 128, 0) == 0) {
        float d[kCols / 2] = {};
        const uint64_t rows = ptx::wgmma_descriptor(base), cols = ptx::wgmma_descriptor(base + 8192);
        const int64_t begin = ptx::clock_cycles();
#pragma unroll 1
        for (int64_t block = 0; block < params.blocks; ++block) {
            for (int i = 0; i < kCols / 2; ++i) ptx::pin(d[i]);
            ptx::wgmma_fence();
#pragma unroll
            for (int step = 0; step < 4; ++step) ptx::Wgmma<kCols>::e4m3(d, rows + 2 * step, cols + 2 * step, true);
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
        }
        ptx::wgmma_wait<0>();
        for (int i = 0; i < kCols / 2; ++i) ptx::pin(d[i]);
        if (threadIdx.x == 0) params.wgmma_cycles[blockIdx.x] = ptx::clock_cycles() - begin;
        for (int i = 0; i < kCols / 2; ++i) sum += d[i];
    } else {
        float total[kInstructions], partial[kInstructions], scale[2] = {1.0f + threadIdx.x, 2.0f + threadIdx.x};
        for (int i = 0; i < kInstructions; ++i) total[i] = 0.1f * i, partial[i] = i + scale[0];
        for (int i = 0; i < kInstructions; ++i) ptx::pin(total[i]), ptx::pin(partial[i]);
        ptx::pin(scale[0]), ptx::pin(scale[1]);
        const int64_t begin = ptx::clock_cycles();
#pragma unroll 1
        for (int64_t round = 0; round < params.rounds; ++round)
#pragma unroll
            for (int i = 0; i < kInstructions; ++i) instruction(total[i], partial[i], scale[kKind == 2 ? i % 2 : 0]);
        if (threadIdx.x == 128) params.loop_cycles[blockIdx.x] = ptx::clock_cycles() - begin;
        for (int i = 0; i < kInstructions; ++i) sum += total[i] + partial[i];
    }
    if (sum == 1234.5f) params.sink[0] = sum;  // never: keeps the sums alive
}
