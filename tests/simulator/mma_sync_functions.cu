// One product of a warp by the functions of ptx/cp_async.cuh, load_matrix.cuh and mma_sync.cuh: A has 16 rows, B has 8,
// of 32 bytes each; the last `missing` bytes of each 16 are not copied. The test defines FUNCTION and ACCUMULATOR.
#include <deep_gemm/ptx/cp_async.cuh>
#include <deep_gemm/ptx/load_matrix.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/mma_sync.cuh>

using namespace deep_gemm;

constexpr int kRowBytes = 32, kRowsA = 16, kRowsB = 8;

extern "C" __global__ void mma_sync_functions(const char* a, const char* b, ACCUMULATOR* d, int missing) {
    __shared__ alignas(128) char shared[(kRowsA + kRowsB) * kRowBytes];
    const uint32_t rows = ptx::shared_address(shared), cols = rows + kRowsA * kRowBytes;
    const int lane = threadIdx.x;
    ptx::copy_async_x16(rows + 16 * lane, a + 16 * lane, 16 - missing);
    ptx::commit_copies();
    for (int half = 0; half < 2; ++half)
        ptx::copy_async<8>(cols + 8 * (2 * (lane % 16) + half), b + 8 * (2 * (lane % 16) + half),
                           half ? 8 - missing : 8);
    ptx::commit_copies();
    ptx::wait_copies<0>();
    __syncwarp();
    uint32_t a_words[4], b_words[2];
    ptx::load_matrix_x4<false>(rows + lane % 16 * kRowBytes + lane / 16 * 16, a_words);
    ptx::load_matrix_x2<false>(cols + lane % 8 * kRowBytes + lane / 8 % 2 * 16, b_words);
    ACCUMULATOR sums[4] = {1, 1, 1, 1};
    ptx::FUNCTION(sums, a_words, b_words);
    for (int i = 0; i < 4; ++i) d[(lane / 4 + i / 2 * 8) * kRowsB + 2 * (lane % 4) + i % 2] = sums[i];
}
