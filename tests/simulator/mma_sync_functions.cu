// One product of a warp by the functions of ptx/cp_async.cuh, load_matrix.cuh and mma_sync.cuh: A has 16 rows, B has 8,
// of 32 bytes each; the last `missing` bytes of each 16 are not copied. The test defines FUNCTION and ACCUMULATOR, WAIT,
// and for elements of 16 bits A_MN_MAJOR and B_MN_MAJOR: then rows are 16 of K, and ldmatrix transposes.
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/cp_async.cuh>
#include <deep_gemm/ptx/load_matrix.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/mma_sync.cuh>

using namespace deep_gemm;

constexpr int kRowBytes = 32, kRowsA = 16, kRowsB = 8, kElementBytes = 2;  // of what can be MN-major

template <bool kMnMajor>
DG_DEVICE void load_a(uint32_t from, uint32_t (&words)[4]) {
    const int lane = threadIdx.x, low = lane % 8, second = lane / 8 % 2, third = lane / 16;
    const int row = kMnMajor ? low + 8 * third : low + 8 * second, chunk = kMnMajor ? second : third;
    ptx::load_matrix_x4<kMnMajor>(from + row * kRowBytes + 16 * chunk, words);
}

template <bool kMnMajor>
DG_DEVICE void load_b(uint32_t from, uint32_t (&words)[2]) {
    const int lane = threadIdx.x % 16;
    const int place = kMnMajor ? lane * kRowsB * kElementBytes : lane % 8 * kRowBytes + lane / 8 * 16;
    ptx::load_matrix_x2<kMnMajor>(from + place, words);
}

extern "C" __global__ void mma_sync_functions(const char* a, const char* b, ACCUMULATOR* d, int missing) {
    __shared__ alignas(128) char shared[(kRowsA + kRowsB) * kRowBytes];
    __shared__ alignas(8) char barrier_storage[8];
    const uint32_t rows = ptx::shared_address(shared), cols = rows + kRowsA * kRowBytes,
                   barrier = ptx::shared_address(barrier_storage);
    const int lane = threadIdx.x;
    if (lane == 0) ptx::barrier_init(barrier, 32);
    __syncwarp();
    ptx::copy_async_x16(rows + 16 * lane, a + 16 * lane, 16 - missing);
    ptx::commit_copies();
    for (int half = 0; half < 2; ++half)
        ptx::copy_async<8>(cols + 8 * (2 * (lane % 16) + half), b + 8 * (2 * (lane % 16) + half),
                           half ? 8 - missing : 8);
    if (WAIT == 0) {
        ptx::commit_copies();
        ptx::wait_copies<0>();
    } else if (WAIT == 1) {
        ptx::wait_all_copies();
    } else {
        ptx::barrier_arrive_after_copies(barrier);
        while (!ptx::barrier_passed(barrier, 0)) {
        }
    }
    __syncwarp();
    uint32_t a_words[4], b_words[2];
    load_a<A_MN_MAJOR>(rows, a_words);
    load_b<B_MN_MAJOR>(cols, b_words);
    ACCUMULATOR sums[4] = {1, 1, 1, 1};
    ptx::FUNCTION(sums, a_words, b_words);
    for (int i = 0; i < 4; ++i) d[(lane / 4 + i / 2 * 8) * kRowsB + 2 * (lane % 4) + i % 2] = sums[i];
}
