// How fast store warps read and write tensor memory: four warps, each with its own lanes, all 512 columns over and over.
//
// The host puts in front: MOVE(address), which moves kColumns columns, and kColumns.
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tcgen05.cuh>

using namespace deep_gemm;

struct Params {
    int64_t* cycles;  // [CTAs]
    uint32_t* sink;   // [threads of all CTAs]
    int64_t rounds;   // over all columns
};

constexpr int kAll = 512;

extern "C" __global__ void __launch_bounds__(128, 1) tensor_moves(const __grid_constant__ Params params) {
    extern __shared__ uint8_t dynamic[];
    const uint32_t address = (ptx::shared_address(dynamic) + 15) & ~15u;
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    if (warp == 0) {
        ptx::allocate_tensor_memory<1>(address, kAll);
        ptx::finish_allocating<1>();
    }
    __syncthreads();
    const auto base = static_cast<uint32_t>(ptx::load_shared_int(address));
    const uint32_t mine = base + (static_cast<uint32_t>(warp) << 21);
    const uint32_t words[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
    for (int column = 0; column < kAll; column += 4) ptx::store_tensor_memory(mine + column, words);
    ptx::wait_tensor_stores();

    uint32_t found[kColumns] = {};
    float sums[kColumns] = {};
    __syncthreads();
    const int64_t begin = ptx::clock_cycles();
#pragma unroll 1
    for (int64_t round = 0; round < params.rounds; ++round) {
#pragma unroll 1
        for (int column = 0; column < kAll; column += kColumns) {
            MOVE(mine + column);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) params.cycles[blockIdx.x] = ptx::clock_cycles() - begin;
    uint32_t all = 0;
    for (int i = 0; i < kColumns; ++i) all ^= found[i] ^ __float_as_uint(sums[i]);
    params.sink[blockIdx.x * blockDim.x + threadIdx.x] = all;  // keeps what was read alive
    __syncthreads();
    if (warp == 0) ptx::free_tensor_memory<1>(base, kAll);
}
