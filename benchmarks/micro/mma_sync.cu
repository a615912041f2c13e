// What mma.sync reaches by itself: products of registers, each warp with sixteen sums under way. The host puts kInteger
// in front.
#include <deep_gemm/ptx/mma_sync.cuh>

using namespace deep_gemm;

struct Params {
    int* sink;
    int64_t rounds;
};

extern "C" __global__ void __launch_bounds__(256) mma_sync(const __grid_constant__ Params params) {
    constexpr int kRows = 4, kCols = 4;
    uint32_t a[kRows][4], b[kCols][2];
    for (int i = 0; i < kRows * 4; ++i) a[i / 4][i % 4] = threadIdx.x * (i + 1);
    for (int i = 0; i < kCols * 2; ++i) b[i / 2][i % 2] = threadIdx.x * (i + 3);
    float sums[kRows][kCols][4] = {};
    int32_t counts[kRows][kCols][4] = {};
#pragma unroll 1
    for (int64_t round = 0; round < params.rounds; ++round) {
#pragma unroll
        for (int i = 0; i < kRows * kCols; ++i) {
            if constexpr (kInteger)
                ptx::mma_s8_s8(counts[i / kCols][i % kCols], a[i / kCols], b[i % kCols]);
            else
                ptx::mma_bf16(sums[i / kCols][i % kCols], a[i / kCols], b[i % kCols]);
        }
    }
    int sink = 0;
    for (int i = 0; i < kRows * kCols * 4; ++i)
        sink ^= counts[i / 16][i / 4 % 4][i % 4] ^ __float_as_int(sums[i / 16][i / 4 % 4][i % 4]);
    if (sink == 0x12345678) params.sink[0] = sink;  // nearly never: keeps the products alive
}
