// Each function of ptx/wgmma*.cuh over one span of 128 bytes of K. The test defines FUNCTION and ACCUMULATOR,
// A_IN_REGISTERS, A_MN_MAJOR, B_MN_MAJOR and STEP_K, the elements of K in a step.
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/wgmma_from_registers.cuh>
#include <deep_gemm/ptx/wgmma_integer.cuh>
#include <deep_gemm/ptx/wgmma_integer_from_registers.cuh>

using namespace deep_gemm;

constexpr int kRows = 64, kSteps = 4, kSpanBytes = 128;

struct Operands {
    const uint32_t *a, *b;  // as they stand in shared memory
    const uint32_t* rows;   // A row after row
    ACCUMULATOR* d;
    int32_t n;
};

__device__ uint64_t operand(uint32_t address, bool mn_major, int step) {
    return mn_major ? ptx::wgmma_descriptor_mn_major(address + 2048 * step)
                    : ptx::wgmma_descriptor(address + 32 * step);
}

__device__ void copy(uint32_t to, const uint32_t* from, int bytes) {
    for (int word = threadIdx.x; word < bytes / 4; word += 128) ptx::store_shared_int(to + 4 * word, from[word]);
}

template <int kN>
__device__ void multiply(const Operands& o, uint32_t a, uint32_t b) {
    ACCUMULATOR d[kN / 2];
    uint32_t fragment[kSteps][4];
    const int t = threadIdx.x, row = 16 * (t / 32) + t % 32 / 4;
    for (int i = 0; i < kN / 2; ++i) d[i] = 7;  // the first step overwrites it
    for (int step = 0; step < kSteps; ++step)
        for (int r = 0; r < 4; ++r)
            fragment[step][r] = o.rows[(row + 8 * (r % 2)) * (kSpanBytes / 4) + 8 * step + t % 4 + 4 * (r / 2)];
    for (int i = 0; i < kN / 2; ++i) ptx::pin(d[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        const uint64_t cols = operand(b, B_MN_MAJOR, step);
#if A_IN_REGISTERS
        FUNCTION(kN)(d, fragment[step], cols, step > 0);
#else
        FUNCTION(kN)(d, operand(a, A_MN_MAJOR, step), cols, step > 0);
#endif
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    for (int i = 0; i < kN / 2; ++i) {
        ptx::pin(d[i]);
        o.d[(row + 8 * (i / 2 % 2)) * kN + 8 * (i / 4) + 2 * (t % 4) + i % 2] = d[i];
    }
}

extern "C" __global__ void __launch_bounds__(128) wgmma_functions(const __grid_constant__ Operands o) {
    __shared__ alignas(1024) char a[kRows * kSpanBytes];
    __shared__ alignas(1024) char b[256 * kSpanBytes];
    copy(ptx::shared_address(a), o.a, kRows * kSpanBytes);
    copy(ptx::shared_address(b), o.b, 256 * kSpanBytes);
    ptx::fence_for_async_proxy();
    __syncthreads();
#define WIDTH(columns) \
    if (o.n == columns) multiply<columns>(o, ptx::shared_address(a), ptx::shared_address(b));
    WIDTHS
}
