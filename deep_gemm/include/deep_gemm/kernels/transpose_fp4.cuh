// Transpose FP4 codes: MN-major operands become K-major, which is all that is multiplied of four bits.
//
// A block moves one tile of 128 x 128 codes through shared memory. A thread makes two words of eight codes along K, of
// the two rows whose codes share bytes.
#pragma once

#include <deep_gemm/kernels/transpose_fp4_params.cuh>
#include <deep_gemm/load/bytes.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

template <Constant<TransposeFp4Config> kConfig>
DG_DEVICE void run_transpose_fp4(const TransposeFp4Params& params) {
    constexpr int32_t kLine = kFp4TileBytes + 4;  // neighbours along K lie in other banks
    constexpr int32_t kWords = kFp4Tile / 8, kChunks = kFp4TileBytes / 16;
    __shared__ alignas(4) uint8_t tile[kFp4Tile * kLine];
    const auto block = static_cast<int32_t>(blockIdx.x), thread = static_cast<int32_t>(threadIdx.x);
    const int32_t first_byte = block % params.mn_tiles * kFp4TileBytes,
                  first_k = block / params.mn_tiles % params.k_tiles * kFp4Tile;
    const int32_t group = block / params.mn_tiles / params.k_tiles;
    ptx::wait_for_previous_grid();

    const uint8_t* const source = params.source + group * params.source_group_stride + first_byte;
#pragma unroll
    for (int32_t i = thread; i < kFp4Tile * kChunks; i += kTransposeFp4Threads) {
        const int32_t line = i / kChunks, byte = i % kChunks * 16, k = first_k + line;
        const uint4 bytes = load_bytes<kConfig.aligned>(source + k * params.source_stride + byte,
                                                        k < params.k ? params.mn_bytes - first_byte - byte : 0);
        auto* const words = reinterpret_cast<uint32_t*>(tile + line * kLine + byte);
        words[0] = bytes.x, words[1] = bytes.y, words[2] = bytes.z, words[3] = bytes.w;
    }
    __syncthreads();

    uint8_t* const target = params.target + group * params.target_group_stride + first_k / 2;
#pragma unroll
    for (int32_t i = thread; i < kFp4TileBytes * kWords; i += kTransposeFp4Threads) {
        const int32_t byte = i / kWords, word = i % kWords;
        if (first_byte + byte >= params.mn_bytes) continue;
        uint32_t low = 0, high = 0;
#pragma unroll
        for (int32_t j = 0; j < 8; ++j) {
            const uint32_t pair = tile[(8 * word + j) * kLine + byte];
            low |= (pair & 15) << (4 * j), high |= (pair >> 4) << (4 * j);
        }
        auto* const row = target + 2 * (first_byte + byte) * params.target_stride + word * 4;
        *reinterpret_cast<uint32_t*>(row) = low;
        *reinterpret_cast<uint32_t*>(row + params.target_stride) = high;
    }
}

}  // namespace deep_gemm
