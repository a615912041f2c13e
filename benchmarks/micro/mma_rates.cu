// How fast mma.sync goes: each warp multiplies a tile of kRowPieces times 16 rows by kColPieces times 8 columns over and
// over, of operands in registers, or (kFed) of operands that ldmatrix brings from shared memory before each step, as the
// GEMM's warps do.
//
// The host puts in front: MULTIPLY(sums, a, b), Sum (of a product: float, int32_t), kRowPieces, kColPieces, kFed.
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/load_matrix.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/mma_block_scaled.cuh>
#include <deep_gemm/ptx/mma_sync.cuh>

using namespace deep_gemm;

struct Params {
    int64_t* cycles;  // [CTAs]
    int64_t* begin_ns;
    int64_t* end_ns;
    Sum* sink;       // [CTAs, threads, 4]: what keeps the products alive
    int64_t rounds;  // of kSteps steps of K
};

constexpr int kThreads = 256, kSteps = 4, kRowBytes = kSteps * 32;
constexpr int kRows = kRowPieces * 16 * 4, kCols = kColPieces * 8 * 2;  // of the CTA: four warps by two

__device__ __forceinline__ int64_t nanoseconds() {
    int64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/// Words without bytes that some format reads as infinite or NaN: sums must not saturate, which would cost less power.
__device__ __forceinline__ uint32_t random_word(uint32_t& state) {
    state = state * 1664525u + 1013904223u;
    return state & 0xbfbfbfbfu;
}

/// Where 16 bytes of a row lie: eight rows that ldmatrix reads together are in different banks.
__device__ __forceinline__ uint32_t place(uint32_t base, int row, int chunk) {
    return base + row * kRowBytes + ((chunk ^ (row % 8)) % 8) * 16;
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) mma_rates(const __grid_constant__ Params params) {
    extern __shared__ __align__(1024) uint8_t dynamic[];
    const uint32_t rows = ptx::shared_address(dynamic), cols = rows + kRows * kRowBytes;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t state = threadIdx.x * 2654435761u + blockIdx.x * 40503u + 1;
    for (int offset = threadIdx.x * 4; offset < (kRows + kCols) * kRowBytes; offset += kThreads * 4)
        ptx::store_shared_int(rows + offset, static_cast<int32_t>(random_word(state)));
    uint32_t a[kRowPieces][4], b[kColPieces][2];
    for (int i = 0; i < kRowPieces * 4; ++i) a[i / 4][i % 4] = random_word(state);
    for (int i = 0; i < kColPieces * 2; ++i) b[i / 2][i % 2] = random_word(state);
    Sum sums[kRowPieces][kColPieces][4] = {};
    __syncthreads();

    const int64_t begin = ptx::clock_cycles();
    if (threadIdx.x == 0) params.begin_ns[blockIdx.x] = nanoseconds();
#pragma unroll 1
    for (int64_t round = 0; round < params.rounds; ++round) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            if constexpr (kFed) {
                const int half = lane / 16, row = lane % 16;
#pragma unroll
                for (int piece = 0; piece < kRowPieces; ++piece)
                    ptx::load_matrix_x4<false>(place(rows, (warp / 2 * kRowPieces + piece) * 16 + row, step * 2 + half), a[piece]);
#pragma unroll
                for (int piece = 0; piece < kColPieces; piece += 2) {
                    const int col = (warp % 2 * kColPieces + piece) * 8 + row % 8 + half * 8;
                    uint32_t words[4];
                    ptx::load_matrix_x4<false>(place(cols, col, step * 2 + row / 8), words);
                    b[piece][0] = words[0], b[piece][1] = words[1];
                    b[piece + 1][0] = words[2], b[piece + 1][1] = words[3];
                }
            }
#pragma unroll
            for (int i = 0; i < kRowPieces; ++i)
#pragma unroll
                for (int j = 0; j < kColPieces; ++j) MULTIPLY(sums[i][j], a[i], b[j]);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        params.cycles[blockIdx.x] = ptx::clock_cycles() - begin;
        params.end_ns[blockIdx.x] = nanoseconds();
    }
    Sum total[4] = {};
    for (int i = 0; i < kRowPieces * kColPieces * 4; ++i) total[i % 4] += sums[i / 4 / kColPieces][i / 4 % kColPieces][i % 4];
    for (int i = 0; i < 4; ++i) params.sink[(blockIdx.x * kThreads + threadIdx.x) * 4 + i] = total[i];
}
