// Transpose two-byte elements: MN-major operands become K-major, for tiles that are lower than MN-major ones are read.
//
// A block moves one tile of 64 x 64 elements through shared memory. A thread makes words of two neighbours along K.
#pragma once

#include <deep_gemm/kernels/transpose_halves_params.cuh>
#include <deep_gemm/load/bytes.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

template <Constant<TransposeHalvesConfig> kConfig>
DG_DEVICE void run_transpose_halves(const TransposeHalvesParams& params) {
    constexpr int32_t kLine = kHalvesTile + 2;  // neighbours along K lie in other banks
    constexpr int32_t kChunks = kHalvesTile * 2 / 16, kWords = kHalvesTile / 2;
    __shared__ alignas(4) uint16_t tile[kHalvesTile * kLine];
    const auto block = static_cast<int32_t>(blockIdx.x), thread = static_cast<int32_t>(threadIdx.x);
    const int32_t first_mn = block % params.mn_tiles * kHalvesTile,
                  first_k = block / params.mn_tiles % params.k_tiles * kHalvesTile;
    const int32_t group = block / params.mn_tiles / params.k_tiles;
    ptx::wait_for_previous_grid();

    const uint8_t* const source = params.source + group * params.source_group_stride + first_mn * 2;
#pragma unroll
    for (int32_t i = thread; i < kHalvesTile * kChunks; i += kTransposeHalvesThreads) {
        const int32_t line = i / kChunks, byte = i % kChunks * 16, k = first_k + line;
        const uint4 bytes = load_bytes<kConfig.aligned>(source + k * params.source_stride + byte,
                                                        k < params.k ? (params.mn - first_mn) * 2 - byte : 0);
        auto* const words = reinterpret_cast<uint32_t*>(tile + line * kLine + byte / 2);
        words[0] = bytes.x, words[1] = bytes.y, words[2] = bytes.z, words[3] = bytes.w;
    }
    __syncthreads();

    uint8_t* const target = params.target + group * params.target_group_stride + first_k * 2;
#pragma unroll
    for (int32_t i = thread; i < kHalvesTile * kWords; i += kTransposeHalvesThreads) {
        const int32_t row = i / kWords, word = i % kWords;
        if (first_mn + row >= params.mn) continue;
        const uint32_t low = tile[2 * word * kLine + row], high = tile[(2 * word + 1) * kLine + row];
        *reinterpret_cast<uint32_t*>(target + (first_mn + row) * params.target_stride + word * 4) = low | high << 16;
    }
}

}  // namespace deep_gemm
