// Transpose one-byte elements: MN-major operands become K-major, which is all that wgmma reads.
//
// A block moves one tile of 128 x 128: 16-byte loads along MN, a 4x4 byte transposition in registers, 16-byte stores
// along K from shared memory. Both sides move whole 128-byte lines.
//
//   warp w reads rows 16 w .. 16 w + 15 of K; lane l rows 4 (l / 8) .. + 3 of them, columns 16 (l % 8) .. + 15 of MN
//   warp w writes rows 4 w + l / 8 + 32 i of MN; lane l the 16-byte chunk l % 8 along K
#pragma once

#include <deep_gemm/kernels/transpose_params.cuh>
#include <deep_gemm/load/bytes.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/tile/k_groups.cuh>

namespace deep_gemm {

/// out[j] = byte j of a, b, c and d.
DG_DEVICE void transpose_bytes(uint32_t (&out)[4], uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t low_ab = __byte_perm(a, b, 0x5140), high_ab = __byte_perm(a, b, 0x7362);
    const uint32_t low_cd = __byte_perm(c, d, 0x5140), high_cd = __byte_perm(c, d, 0x7362);
    out[0] = __byte_perm(low_ab, low_cd, 0x5410), out[1] = __byte_perm(low_ab, low_cd, 0x7632);
    out[2] = __byte_perm(high_ab, high_cd, 0x5410), out[3] = __byte_perm(high_ab, high_cd, 0x7632);
}

/// 32-bit word of the tile that holds four neighbours along K. Chunks of 16 bytes are permuted so that neither the
/// word-wise writes nor the chunk-wise reads of a warp meet in a bank.
DG_DEVICE int32_t tile_word(int32_t mn, int32_t chunk) { return mn * (kTransposeTile / 4) + (chunk ^ mn / 16 % 8) * 4; }

/// Rows of K that a tile takes from the source.
struct SourceRows {
    int32_t begin, count;
};

template <Constant<TransposeConfig> kConfig>
DG_DEVICE SourceRows find_rows(const TransposeParams& params, int32_t k_tile) {
    if constexpr (kConfig.k_grouped) {
        __shared__ SourceRows found;
        if (threadIdx.x == 0) found = {0, 0};
        __syncthreads();
        if (threadIdx.x < 32)
            visit_k_groups(params.k_groups, [&](int32_t, const KGroup& group) {
                const int32_t before = (k_tile - group.first_block) * kTransposeTile;
                if (k_tile >= group.first_block && before < group.k) found = {group.begin + before, group.k - before};
            });
        __syncthreads();
        return found;
    } else {
        return {k_tile * kTransposeTile, params.k - k_tile * kTransposeTile};
    }
}

template <Constant<TransposeConfig> kConfig>
DG_DEVICE void run_transpose(const TransposeParams& params) {
    __shared__ alignas(16) uint32_t tile[kTransposeTile * kTransposeTile / 4];
    const int32_t block = static_cast<int32_t>(blockIdx.x), warp = static_cast<int32_t>(threadIdx.x) / 32,
                  lane = threadIdx.x % 32;
    const int32_t first_mn = block % params.mn_tiles * kTransposeTile;
    const int32_t k_tile = block / params.mn_tiles % params.k_tiles;
    const int32_t group = block / params.mn_tiles / params.k_tiles;
    ptx::wait_for_previous_grid();
    const SourceRows rows = find_rows<kConfig>(params, k_tile);
    if (rows.count <= 0) return;  // past the last group

    const int32_t tile_mn = lane % 8 * 16, tile_row = warp * 16 + lane / 8 * 4;
    const uint8_t* source = params.source + group * params.source_group_stride +
                            (rows.begin + tile_row) * params.source_stride + first_mn + tile_mn;
    const int32_t valid = params.mn - first_mn - tile_mn;
    uint4 v[4];
#pragma unroll
    for (int32_t i = 0; i < 4; ++i)
        v[i] = load_bytes<kConfig.aligned>(source + i * params.source_stride, tile_row + i < rows.count ? valid : 0);

    const uint32_t words[4][4] = {{v[0].x, v[1].x, v[2].x, v[3].x},
                                  {v[0].y, v[1].y, v[2].y, v[3].y},
                                  {v[0].z, v[1].z, v[2].z, v[3].z},
                                  {v[0].w, v[1].w, v[2].w, v[3].w}};
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
        uint32_t out[4];
        transpose_bytes(out, words[i][0], words[i][1], words[i][2], words[i][3]);
#pragma unroll
        for (int32_t j = 0; j < 4; ++j) tile[tile_word(tile_mn + 4 * i + j, warp) + lane / 8] = out[j];
    }
    __syncthreads();

    const int32_t chunk = lane % 8;
    uint8_t* target =
        params.target + group * params.target_group_stride + static_cast<int64_t>(k_tile) * kTransposeTile + chunk * 16;
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
        const int32_t row = i * 32 + warp * 4 + lane / 8;
        // K groups are filled up with zeros to whole blocks; other operands to whole chunks.
        if (first_mn + row < params.mn && (kConfig.k_grouped || chunk * 16 < rows.count))
            *reinterpret_cast<uint4*>(target + (first_mn + row) * params.target_stride) =
                *reinterpret_cast<const uint4*>(tile + tile_word(row, chunk));
    }
}

}  // namespace deep_gemm
