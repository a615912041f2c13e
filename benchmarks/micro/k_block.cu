// What one K block costs an SM: multiply, promote, read scales, copy operands. Each part can be left out.
//
// The host puts the constants in front: kCols (N of wgmma), kWarpgroups, kSubtiles (accumulators of m64 a warpgroup),
// kPromote (0: the tensor cores accumulate; 1: one scale a row; 2: row times column scales, columns from shared
// memory; 3: the same, products made while the tensor cores work; 4: columns read into registers while they work; 5:
// products by one TF32 wgmma),
// kRowsInRegisters (operand of m64 from registers),
// kCopy (copy operands into a ring while multiplying: 1 from regions of each CTA's own, 2 from regions shared as a GEMM
// shares them), kCluster (pairs that share the columns' operand by multicast), kMultiply, kBlocks.
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/wgmma.cuh>

using namespace deep_gemm;

struct Params {
    const uint8_t* operands;  // random E4M3, as much for each CTA as the ring holds
    int64_t* cycles;          // [CTAs]
    int64_t* nanoseconds;
    float* sink;
    int64_t operand_bytes;
};

constexpr int kRows = 64 * kWarpgroups * kRowTiles;
constexpr int kStageBytes = (kRows + kCols * kColTiles) * 128;
constexpr int kStages = 220000 / kStageBytes < 4 ? 220000 / kStageBytes : 4;

__device__ __forceinline__ void bulk_copy(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
        "l"(source), "r"(bytes), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void bulk_copy_to_all(uint32_t destination, const void* source, uint32_t bytes,
                                                 uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
        ::"r"(destination), "l"(source), "r"(bytes), "r"(barrier), "h"(static_cast<uint16_t>((1 << kCluster) - 1))
        : "memory");
}

__device__ __forceinline__ int64_t nanoseconds() {
    int64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/// This warp has read a stage: every CTA that copies into it may know.
__device__ __forceinline__ void release(uint32_t barrier) {
    __syncwarp();
    if constexpr (kCluster == 1) {
        if (threadIdx.x % 32 == 0) ptx::barrier_arrive(barrier);
    } else {
        if (threadIdx.x % 32 < kCluster) ptx::barrier_arrive_remote(barrier, threadIdx.x % 32);
    }
}

template <int kN>
__device__ __forceinline__ void promote(float (&total)[kN], const float (&partial)[kN], float row0, float row1,
                                        uint32_t column_scales, const float2 (&held)[kN / 4]) {
#pragma unroll
    for (int i = 0; i < kN; i += 4) {
        if constexpr (kPromote == 1) {
            total[i] = __fmaf_rn(partial[i], row0, total[i]);
            total[i + 1] = __fmaf_rn(partial[i + 1], row0, total[i + 1]);
            total[i + 2] = __fmaf_rn(partial[i + 2], row1, total[i + 2]);
            total[i + 3] = __fmaf_rn(partial[i + 3], row1, total[i + 3]);
        } else {
            const float2 c = kPromote == 4 ? held[i / 4] : ptx::load_shared_x2(column_scales + i * 8);
            total[i] = __fmaf_rn(partial[i], row0 * c.x, total[i]);
            total[i + 1] = __fmaf_rn(partial[i + 1], row0 * c.y, total[i + 1]);
            total[i + 2] = __fmaf_rn(partial[i + 2], row1 * c.x, total[i + 2]);
            total[i + 3] = __fmaf_rn(partial[i + 3], row1 * c.y, total[i + 3]);
        }
    }
}

/// Row times column scales, two groups of 8 columns from each 16-byte load.
template <int kN>
__device__ __forceinline__ void multiply_scales(float (&products)[kN], float row0, float row1, uint32_t column_scales) {
    if constexpr (kN > 1) {
#pragma unroll
        for (int i = 0; i < kN; i += 8) {
            const float4 c = ptx::load_shared_x4(column_scales + i * 8);
            products[i] = row0 * c.x, products[i + 1] = row0 * c.y;
            products[i + 2] = row1 * c.x, products[i + 3] = row1 * c.y;
            products[i + 4] = row0 * c.z, products[i + 5] = row0 * c.w;
            products[i + 6] = row1 * c.z, products[i + 7] = row1 * c.w;
        }
#pragma unroll
        for (int i = 0; i < kN; ++i) ptx::pin(products[i]);
    }
}

/// Row times column scales, by the tensor cores.
template <int kN>
__device__ __forceinline__ void issue_products(float (&products)[kN], float row0, float row1, uint32_t column_scales) {
    const uint32_t rows[4] = {__float_as_uint(row0), __float_as_uint(row1), 0, 0};
    if constexpr (kN == 64) ptx::WgmmaTf32<128>::run(products, rows, ptx::wgmma_descriptor_repeated(column_scales));
}

extern "C" __global__ void __launch_bounds__(kWarpgroups * 128 + 128, 1)
    k_block(const __grid_constant__ Params params) {
    extern __shared__ uint8_t dynamic[];
    const uint32_t base = (ptx::shared_address(dynamic) + 1023) & ~1023u;
    const uint32_t barriers = base + kStages * kStageBytes, scales = barriers + 256;
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
    const auto full = [&](int stage) { return barriers + stage * 8; };
    const auto empty = [&](int stage) { return barriers + 128 + stage * 8; };
    constexpr int kRowsBytes = kRows * 128, kColsBytes = kCols * kColTiles * 128;
    const int64_t row_region = kCopy == 2 ? blockIdx.x / kCluster % 8 * kCluster + blockIdx.x % kCluster : blockIdx.x,
                  col_region = kCopy == 2 ? blockIdx.x / kCluster / 8 : blockIdx.x;
    const uint8_t* rows_source = params.operands + row_region * kStages * kRowsBytes;
    const uint8_t* cols_source = params.operands + params.operand_bytes / 2 + col_region * kStages * kColsBytes;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) {
            ptx::barrier_init(full(stage), 1);
            ptx::barrier_init(empty(stage), kWarpgroups * 4 * kCluster);
        }
        ptx::fence_barrier_init();
    }
    for (int i = threadIdx.x; i < 512; i += blockDim.x) ptx::store_shared(scales + i * 4, 1.0f + i * 1e-3f);
    for (int i = threadIdx.x * 4; i < kStages * kStageBytes; i += blockDim.x * 4)
        ptx::store_shared(base + i, *reinterpret_cast<const float*>(params.operands + i));
    ptx::fence_for_async_proxy();
    if constexpr (kCluster > 1) __cluster_barrier_arrive(), __cluster_barrier_wait();
    __syncthreads();
    const int64_t begin = ptx::clock_cycles(), begin_ns = nanoseconds();
    if (warpgroup == kWarpgroups) {
        if constexpr (kWarpgroups > 1) ptx::give_registers<kWarpgroups == 3 ? 32 : 40>();
        if (kCopy && threadIdx.x == kWarpgroups * 128)
#pragma unroll 1
            for (int block = 0, stage = 0, phase = 1; block < kBlocks; ++block) {
                ptx::barrier_wait(empty(stage), phase);
                ptx::barrier_arrive_expect(full(stage), kStageBytes);
                const uint32_t at = base + stage * kStageBytes;
#pragma unroll 1
                for (int part = 0; part < kRowsBytes; part += 8192)
                    bulk_copy(at + part, rows_source + stage * kRowsBytes + part, 8192, full(stage));
#pragma unroll 1
                for (int part = 0; part < kColsBytes; part += 8192)
                    if constexpr (kCluster == 1)
                        bulk_copy(at + kRowsBytes + part, cols_source + stage * kColsBytes + part, 8192, full(stage));
                    else if (part / 8192 % kCluster == blockIdx.x % kCluster)
                        bulk_copy_to_all(at + kRowsBytes + part, cols_source + stage * kColsBytes + part, 8192,
                                         full(stage));
                if (++stage == kStages) stage = 0, phase ^= 1;
            }
    } else {
        if constexpr (kWarpgroups > 1) ptx::take_registers<kWarpgroups == 3 ? 160 : 232>();
        float total[kRowTiles * kColTiles][kCols / 2] = {};
#pragma unroll 1
        for (int block = 0, stage = 0, phase = 0; block < kBlocks; ++block) {
            if (kCopy) ptx::barrier_wait(full(stage), phase);
            const uint32_t at = base + stage * kStageBytes;
            const float row0 = kPromote ? ptx::load_shared(scales + threadIdx.x % 32 * 4) : 1,
                        row1 = kPromote ? ptx::load_shared(scales + 32 * 4 + threadIdx.x % 32 * 4) : 1;
            uint32_t fragment[16];
            if constexpr (kRowsInRegisters)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                                 : "=r"(fragment[4 * i]), "=r"(fragment[4 * i + 1]), "=r"(fragment[4 * i + 2]),
                                   "=r"(fragment[4 * i + 3])
                                 : "r"(at + warpgroup * 8192 + threadIdx.x / 32 % 4 * 2048 +
                                       (threadIdx.x % 16 * 128 + ((i * 32 + threadIdx.x % 32 / 16 * 16) ^
                                                                  threadIdx.x % 8 * 16))));
#pragma unroll
            for (int tile = 0; tile < kRowTiles * kColTiles; ++tile) {
                const int row_tile = tile % kRowTiles, col_tile = tile / kRowTiles;
                float2 held[kCols / 8];
                float partial[kCols / 2], products[kPromote == 3 || kPromote == 5 ? kCols / 2 : 1];
                float(&d)[kCols / 2] = kPromote ? partial : total[tile];
                if constexpr (kMultiply) {
                    const uint64_t rows =
                        ptx::wgmma_descriptor(at + (warpgroup * kRowTiles + row_tile) * 8192);
                    const uint64_t cols =
                        ptx::wgmma_descriptor(at + kRows * 128 + col_tile * kCols * 128);
                    for (int i = 0; i < kCols / 2; ++i) ptx::pin(d[i]);
                    ptx::wgmma_fence();
#pragma unroll
                    for (int step = 0; step < 4; ++step)
                        if constexpr (kRowsInRegisters)
                            multiply_registers(d, fragment + 4 * step, cols + 2 * step, !kPromote || step);
                        else
                            ptx::Wgmma<kCols>::e4m3(d, rows + 2 * step, cols + 2 * step, !kPromote || step);
                    if constexpr (kPromote == 5) issue_products(products, row0, row1, scales);
                    ptx::wgmma_commit();
                    for (int i = 0; i < kCols / 2; ++i) ptx::pin(d[i]);
                    if constexpr (kPromote == 5)
                        for (int i = 0; i < kCols / 2; ++i) ptx::pin(products[i]);
                    // Without it ptxas puts the loads and products between two wgmma.
                    if constexpr (kPromote == 3) __syncwarp();
                    if constexpr (kPromote == 4) {
#pragma unroll
                        for (int i = 0; i < kCols / 8; ++i)
                            held[i] = ptx::load_shared_x2(scales + threadIdx.x % 4 * 8 + i * 32);
                    }
                    if constexpr (kPromote == 3) multiply_scales(products, row0, row1, scales + threadIdx.x % 4 * 16);
                    ptx::wgmma_wait<0>();
                    for (int i = 0; i < kCols / 2; ++i) ptx::pin(d[i]);
                    if constexpr (kPromote == 5)
                        for (int i = 0; i < kCols / 2; ++i) ptx::pin(products[i]);
                } else {
                    for (int i = 0; i < kCols / 2; ++i) d[i] = row0, ptx::pin(d[i]);
                }
                if (kCopy && tile == kRowTiles * kColTiles - 1 && kPromote != 2) {
                    release(empty(stage));
                }
                if constexpr (kPromote == 3 || kPromote == 5)
                    for (int i = 0; i < kCols / 2; ++i)
                        total[tile][i] = __fmaf_rn(partial[i], products[i], total[tile][i]);
                else if constexpr (kPromote != 0)
                    promote(total[tile], partial, row0, row1, scales + threadIdx.x % 4 * 8, held);
                if (kCopy && tile == kRowTiles * kColTiles - 1 && kPromote == 2) {
                    release(empty(stage));
                }
            }
            if (++stage == kStages) stage = 0, phase ^= 1;
        }
        float sum = 0;
#pragma unroll
        for (int tile = 0; tile < kRowTiles * kColTiles; ++tile)
#pragma unroll
            for (int i = 0; i < kCols / 2; ++i) sum += total[tile][i];
        if constexpr (kCluster > 1) __syncwarp();
        if (sum == 1234.5f) params.sink[0] = sum;  // never: keeps the sums alive
        if (threadIdx.x % 128 == 0 && warpgroup == 0) {
            params.cycles[blockIdx.x] = ptx::clock_cycles() - begin;
            params.nanoseconds[blockIdx.x] = nanoseconds() - begin_ns;
        }
    }
    if constexpr (kCluster > 1) __cluster_barrier_arrive(), __cluster_barrier_wait();  // copies into this CTA may still come
}
