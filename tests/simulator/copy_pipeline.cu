// A small, complete GEMM as one writes it for Ampere, for testing the simulator: cp.async into a ring of stages,
// ldmatrix, mma.sync, and D staged through the memory of a stage.
//
// D[M, N] (bf16) = A[M, K] * B[K, N] (bf16). Correct with BUG=0; each other value of BUG plants one mistake.
// Persistent: a block takes tiles until none are left. Rows and columns of zeros fill what lies outside of A and B.
#include <deep_gemm/ptx/convert.cuh>
#include <deep_gemm/ptx/cp_async.cuh>
#include <deep_gemm/ptx/load_matrix.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/mma_sync.cuh>

#ifndef BUG
#define BUG 0
#endif

using namespace deep_gemm;

struct Params {
    const uint16_t *a, *b;
    uint16_t* d;
    int m, n, k, a_stride, b_stride, d_stride;
};

constexpr int kTile = 64, kStages = 3, kThreads = 128;
constexpr int kRowBytes = 2 * kTile, kChunks = kRowBytes / 16, kChunkElements = 8;  // 16 bytes are copied at once
constexpr int kOperandBytes = kTile * kRowBytes, kStageBytes = 2 * kOperandBytes;
constexpr int kWarpTile = 32, kMmaM = 16, kMmaN = 8, kMmaK = 16;
constexpr int kPartsM = kWarpTile / kMmaM, kPartsN = kWarpTile / kMmaN;

// Chunks of a row stand in another order in each of eight rows, so that eight rows of a column lie in different banks.
DG_DEVICE uint32_t place_of(int row, int chunk, bool swizzled = true) {
    return row * kRowBytes + (swizzled ? chunk ^ row % 8 : chunk) * 16;
}

DG_DEVICE int clamp(int value, int low, int high) { return value < low ? low : value > high ? high : value; }

/// 64 rows of 64 elements from `row` and `column` on of a matrix of rows x columns.
DG_DEVICE void copy_operand(uint32_t to, const uint16_t* from, int stride, int row, int column, int rows, int columns) {
    for (int i = threadIdx.x; i < kTile * kChunks; i += kThreads) {
        const int r = i / kChunks, c = i % kChunks, first = column + c * kChunkElements;
        if (BUG == 15 && r == 5) continue;
        const bool inside = BUG == 14 || row + r < rows;
        int given = inside ? 2 * clamp(columns - first, 0, kChunkElements) : 0;
        if (BUG == 23 && given) given = 16;
        const uint16_t* const source = from + int64_t(row + r) * stride + first + (BUG == 17 ? 4 : 0);
        ptx::copy_async_x16(to + place_of(r, c), given ? source : from, given);
    }
}

struct Sums {
    float parts[kPartsM][kPartsN][4] = {};
};

DG_DEVICE void multiply(uint32_t a, uint32_t b, Sums& sums) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_row = warp / 2 * kWarpTile, first_chunk = warp % 2 * (kWarpTile / kChunkElements);
    for (int k = 0; k < kTile / kMmaK; ++k) {
        uint32_t a_words[kPartsM][4], b_words[kPartsN / 2][4];
        for (int i = 0; i < kPartsM; ++i)
            ptx::load_matrix_x4<false>(a + place_of(first_row + i * kMmaM + lane % 16, 2 * k + lane / 16, BUG != 21),
                                       a_words[i]);
        for (int j = 0; j < kPartsN / 2; ++j)
            ptx::load_matrix_x4<BUG != 22>(b + place_of(k * kMmaK + lane % 16, first_chunk + 2 * j + lane / 16),
                                           b_words[j]);
        for (int i = 0; i < kPartsM; ++i)
            for (int j = 0; j < kPartsN; ++j) {
                const uint32_t pair[2] = {b_words[j / 2][j % 2 * 2], b_words[j / 2][j % 2 * 2 + 1]};
                ptx::mma_bf16(sums.parts[i][j], a_words[i], pair);
            }
    }
}

DG_DEVICE void stage_d(uint32_t to, const Sums& sums) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = 0; i < kPartsM; ++i)
        for (int j = 0; j < kPartsN; ++j)
            for (int half = 0; half < 2; ++half) {
                const float* const pair = sums.parts[i][j] + 2 * half;
                const int row = warp / 2 * kWarpTile + i * kMmaM + half * 8 + lane / 4;
                const uint32_t place = place_of(row, warp % 2 * (kWarpTile / kChunkElements) + j) + lane % 4 * 4;
                ptx::store_shared_int(to + place, int32_t(ptx::pack_bf16(pair[0], pair[1])));
            }
}

/// Each warp stores what it has staged.
DG_DEVICE void store_d(const Params& p, uint32_t from, int row, int column) {
    constexpr int kPartChunks = kWarpTile / kChunkElements;
    const int warp = threadIdx.x / 32;
    for (int i = threadIdx.x % 32; i < kWarpTile * kPartChunks; i += 32) {
        const int r = warp / 2 * kWarpTile + i / kPartChunks, c = warp % 2 * kPartChunks + i % kPartChunks;
        if (row + r >= p.m || column + c * kChunkElements >= p.n) continue;
        const int4 words = ptx::load_shared_int_x4(from + place_of(r, c));
        *reinterpret_cast<int4*>(p.d + int64_t(row + r) * p.d_stride + column + c * kChunkElements) = words;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads) copy_pipeline(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) char memory[];
    const uint32_t stages = ptx::shared_address(memory);
    const int tiles_n = ceil_div(p.n, kTile), tiles = ceil_div(p.m, kTile) * tiles_n, blocks = ceil_div(p.k, kTile);
    for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x)) {
        const int row = tile / tiles_n * kTile, column = tile % tiles_n * kTile;
        const auto copy_stage = [&](int slot, int block) {
            const uint32_t stage = stages + slot % kStages * kStageBytes;
            copy_operand(stage, p.a, p.a_stride, row, block * kTile, p.m, p.k);
            copy_operand(stage + kOperandBytes, p.b, p.b_stride, block * kTile, column, p.k, p.n);
        };
        for (int block = 0; block < kStages - 1; ++block) {
            if (block < blocks) copy_stage(block, block);
            if (BUG != 6 || block > 0) ptx::commit_copies();
        }
        Sums sums;
        for (int block = 0; block < blocks; ++block) {
            const int next = block + kStages - 1;
            if (BUG == 4) __syncthreads();
            if (BUG == 8 && next < blocks) copy_stage(next, next);
            if (BUG != 1 && (BUG != 16 || threadIdx.x < 32)) ptx::wait_copies<BUG == 2 ? kStages - 1 : kStages - 2>();
            if (BUG != 3 && BUG != 4) __syncthreads();
            if (BUG != 8 && (next < blocks || BUG == 10)) copy_stage(BUG == 7 ? block : next, next);
            if (BUG != 5 || next < blocks) ptx::commit_copies();
            const uint32_t stage = stages + block % kStages * kStageBytes;
            multiply(stage, stage + kOperandBytes, sums);
        }
        const uint32_t staged = stages + (BUG == 10 ? blocks : blocks - 1) % kStages * kStageBytes;
        if (BUG != 9) __syncthreads();
        stage_d(staged, sums);
        if (BUG != 11) __syncwarp();
        store_d(p, staged, row, column);
        if (BUG != 12) __syncthreads();
        if (BUG == 13 && tile + int(gridDim.x) >= tiles) {
            copy_stage(0, 0);
            ptx::commit_copies();
        }
    }
}
