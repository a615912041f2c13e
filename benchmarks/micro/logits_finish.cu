// What finishing index logits costs beside wgmma: two warpgroups multiply tiles of 64 keys by the queries of their own
// rows, as the logits' kernel does with many rows, of operands that stay in shared memory.
//
// The host puts in front: kHeads, kD, kProducts (of a tile), kRows (of queries, of a product), kPart (an index of PARTS in
// logits_finish.py).
#include <deep_gemm/logits/finish.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/wgmma.cuh>

using namespace deep_gemm;

struct Params {
    int64_t* cycles;  // [CTAs]
    int64_t* begin_ns;
    int64_t* end_ns;
    float* logits;  // [CTAs, 2, kProducts * kRows, keys]
    int64_t tiles;  // of 64 keys
    int64_t keys;   // of a row of logits: tiles go round
};

constexpr int kColumns = kRows * kHeads, kSums = kColumns / 2, kWeights = kColumns / 4, kTile = 64, kKeyTiles = 4;
using Quads = QuadSums<kRows>;

__device__ __forceinline__ int64_t nanoseconds() {
    int64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/// Bytes that E4M3 does not read as NaN, of either sign and sizes near one: what tensor cores draw depends on them.
__device__ __forceinline__ int32_t random_word(uint32_t& state) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int32_t>((state >> 3 & 0x8f8f8f8fu) | 0x30303030u);
}

__device__ __forceinline__ void pin(float (&sums)[kSums]) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) ptx::pin(sums[i]);
}

__device__ __forceinline__ void multiply(float (&sums)[kSums], uint32_t keys, uint32_t queries) {
    const uint64_t rows = ptx::wgmma_descriptor_of_rows<kD>(keys), cols = ptx::wgmma_descriptor_of_rows<kD>(queries);
    pin(sums);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kD / 32; ++step)
        ptx::Wgmma<kColumns>::e4m3(sums, rows + step * 2, cols + step * 2, step > 0);
    ptx::wgmma_commit();
    pin(sums);
}

/// A row of logits has its weights in registers; `total` keeps what is not stored alive.
__device__ __forceinline__ void finish(const float (&sums)[kSums], const float (&weights)[kWeights], float scale,
                                       float* logits, int64_t stride, int lane, float& total) {
    constexpr int kEights = kHeads / 8;
    if constexpr (kPart == 0) {
        total += sums[0];
        return;
    }
    float of_row[kRows][2] = {};
#pragma unroll
    for (int i = 0; i < kEights * 2; ++i)
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
            const int eight = row * kEights + i / 2;
#pragma unroll
            for (int half = 0; half < 2; ++half)
                of_row[row][half] = __fmaf_rn(ptx::relu(sums[eight * 4 + half * 2 + i % 2]), weights[eight * 2 + i % 2],
                                              of_row[row][half]);
        }
    if constexpr (kPart == 1) {
#pragma unroll
        for (int i = 0; i < kRows * 2; ++i) total += of_row[i / 2][i % 2];
        return;
    }
    float kept[Quads::kKept];
    Quads::reduce(of_row, kept, lane);
#pragma unroll
    for (int i = 0; i < Quads::kKept; ++i) {
        if constexpr (kPart == 2) total += kept[i] * scale;
        if constexpr (kPart == 3)
            if (Quads::stores(lane)) logits[(Quads::first_row(lane) + i) * stride] = kept[i] * scale;
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) logits_finish(const __grid_constant__ Params params) {
    extern __shared__ uint8_t dynamic[];
    const uint32_t base = (ptx::shared_address(dynamic) + 1023) & ~1023u;
    constexpr int kQueryBytes = kColumns * kD, kKeyBytes = kTile * kD,
                  kBytes = kKeyTiles * kKeyBytes + 2 * kProducts * kQueryBytes;
    const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
    uint32_t state = threadIdx.x * 2654435761u + blockIdx.x * 40503u + 1;
    for (int i = threadIdx.x * 4; i < kBytes; i += blockDim.x * 4) ptx::store_shared_int(base + i, random_word(state));
    ptx::fence_for_async_proxy();
    __syncthreads();
    const uint32_t queries = base + kKeyTiles * kKeyBytes + group * kProducts * kQueryBytes;
    float weights[kProducts][kWeights], total = 0, scale = 1.0f + 0.001f * lane;
#pragma unroll
    for (int i = 0; i < kProducts * kWeights; ++i) {
        weights[i / kWeights][i % kWeights] = 0.01f * (static_cast<int>(state >> 8 & 255) - 128 + i);
        ptx::pin(weights[i / kWeights][i % kWeights]);
    }
    const int key = threadIdx.x / 32 % 4 * 16 + Quads::key(lane);
    float* const rows = params.logits + (blockIdx.x * 2 + group) * kProducts * kRows * params.keys + key;
    const int64_t begin = ptx::clock_cycles();
    if (threadIdx.x == 0) params.begin_ns[blockIdx.x] = nanoseconds();
    int64_t first = 0;
#pragma unroll 1
    for (int64_t tile = 0; tile < params.tiles; ++tile) {
        float sums[kProducts][kSums];
        const uint32_t keys = base + static_cast<int>(tile % kKeyTiles) * kKeyBytes;
#pragma unroll
        for (int product = 0; product < kProducts; ++product)
            multiply(sums[product], keys, queries + product * kQueryBytes);
        if constexpr (kProducts == 2) {
            ptx::wgmma_wait<1>();
            pin(sums[0]);
            finish(sums[0], weights[0], scale, rows + first, params.keys, lane, total);
        }
        ptx::wgmma_wait<0>();
        pin(sums[kProducts - 1]);
        finish(sums[kProducts - 1], weights[kProducts - 1], scale, rows + (kProducts - 1) * kRows * params.keys + first,
               params.keys, lane, total);
        first = first + kTile == params.keys ? 0 : first + kTile;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        params.cycles[blockIdx.x] = ptx::clock_cycles() - begin;
        params.end_ns[blockIdx.x] = nanoseconds();
    }
    if (total == 1234.5f) params.logits[0] = total;  // never: keeps the sums alive
}
