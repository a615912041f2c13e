// D of 16 bits out of registers, 16 bytes a lane: four lanes that share a row of the fragment exchange pairs of
// neighbours, so that each has eight columns that follow each other.
#pragma once

#include <deep_gemm/store/fragment.cuh>

namespace deep_gemm {

/// Whether a tile's rows are written so: straight tiles without heads, of enough columns.
constexpr bool stores_quads(const GemmConfig& c) {
    return bits(c.output) == 16 && !c.swap_ab && !c.heads.any() && c.held_cols() % (kQuad * Fragment16x8::kCols) == 0;
}

/// Whether D's rows lie so that 16 bytes of each are written at once, all inside or none.
template <Constant<GemmConfig> c>
DG_DEVICE bool has_chunks(const Fragment<c>& at, const GemmParams& params) {
    constexpr int32_t kElements = 8;
    return ((params.d_stride | params.d_group_stride | at.n_end) % kElements) == 0 &&
           reinterpret_cast<uint64_t>(params.d_data) % (kElements * 2) == 0;
}

template <Constant<GemmConfig> c>
DG_DEVICE void store_quads(const Results<c>& results, const Fragment<c>& at, const GemmParams& params) {
    // C may be D: other lanes have read what this one writes.
    if constexpr (c.add_c) __syncwarp();
    const int32_t lane = threadIdx.x % kQuad;
    const int32_t first_col = at.col - Fragment16x8::col(lane) + lane * Fragment16x8::kCols;
    auto* data =
        static_cast<uint16_t*>(params.d_data) + at.group * params.d_group_stride + at.row * params.d_stride + first_col;
#pragma unroll
    for (int32_t group = 0; group < c.held_cols() / Fragment16x8::kCols; group += kQuad)
#pragma unroll
        for (int32_t half = 0; half < 2; ++half) {
            uint32_t words[kQuad];
#pragma unroll
            for (int32_t i = 0; i < kQuad; ++i) {
                const int32_t pair = Fragment16x8::pair(group + i, half);
                words[i] = Pack<c.output>::pack(results[pair], results[pair + 1]);
            }
            exchange_in_quad(words);
            const int32_t down = half * Fragment16x8::kHalfRows, along = group * Fragment16x8::kCols;
            if (at.row + down < at.m_end && first_col + along < at.n_end)
                *reinterpret_cast<uint4*>(data + down * params.d_stride + along) =
                    make_uint4(words[0], words[1], words[2], words[3]);
        }
}

/// D out of registers.
template <Constant<GemmConfig> c>
DG_DEVICE void store_piece(const Results<c>& results, const Fragment<c>& at, const GemmParams& params) {
    if constexpr (stores_quads(c))
        if (has_chunks<c>(at, params)) return store_quads<c>(results, at, params);
    store_direct<c>(results, at, params);
}

}  // namespace deep_gemm
