// D in chunks: from registers into staging buffers in shared memory, and by copies from there to where it belongs.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/epilogue/heads.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/store/sm90/direct.cuh>
#include <deep_gemm/store/sm90/shared_tile.cuh>
#include <deep_gemm/store/swizzle.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// Groups of 8 columns of the instruction's frame in one chunk.
constexpr int32_t col_groups(const GemmConfig& c) {
    return (c.swap_ab ? store_chunk(c).outer : store_chunk(c).inner) / Fragment16x8::kCols;
}

/// One chunk of this warp's 16 rows as FP32 or s32 into a staging buffer, in the swizzled layout that the store's box
/// has.
template <Constant<GemmConfig> c>
DG_DEVICE void stage_32_bits(uint32_t buffer, const Results<c>& total, int32_t chunk) {
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kSpan = kChunk.swizzle_bytes(), kColGroups = col_groups(c);
    const int32_t lane = ptx::lane(), row = Fragment16x8::row(lane), col = Fragment16x8::col(lane);
    if constexpr (c.swap_ab) {
#pragma unroll
        for (int32_t j = 0; j < kColGroups; ++j) {
            const auto* values = total + Fragment16x8::pair(chunk * kColGroups + j, 0);
#pragma unroll
            for (int32_t h = 0; h < 2; ++h) {
                const int32_t offset =
                    (j * Fragment16x8::kCols + col) * kSpan + (row + h * Fragment16x8::kHalfRows) * 4;
                ptx::store_shared(buffer + swizzled<kSpan>(offset), values[2 * h]);
                ptx::store_shared(buffer + swizzled<kSpan>(offset + kSpan), values[2 * h + 1]);
            }
        }
    } else {
        // Four rows are written at a time, 32 bytes each. Swizzled, rows 2 i and 2 i + 1 would meet in the same banks:
        // odd rows write their column groups in another order.
        constexpr int32_t kOther = kColGroups == 4 ? 2 : 0;
        const bool odd = row % 2 != 0;
#pragma unroll
        for (int32_t j = 0; j < kColGroups; ++j) {
            const auto* mine = total + Fragment16x8::pair(chunk * kColGroups + j, 0);
            const auto* other = total + Fragment16x8::pair(chunk * kColGroups + (j ^ kOther), 0);
#pragma unroll
            for (int32_t h = 0; h < 2; ++h) {
                const uint32_t offset =
                    swizzled<kSpan>((row + h * Fragment16x8::kHalfRows) * kSpan + (j * Fragment16x8::kCols + col) * 4);
                ptx::store_shared_x2(buffer + (offset ^ (odd ? kOther * Fragment16x8::kCols * 4 : 0)),
                                     odd ? other[2 * h] : mine[2 * h], odd ? other[2 * h + 1] : mine[2 * h + 1]);
            }
        }
    }
}

/// The same as elements of 16 bits.
template <Constant<GemmConfig> c>
DG_DEVICE void stage_16_bits(uint32_t buffer, const Results<c>& total, int32_t chunk) {
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kSpan = kChunk.swizzle_bytes(), kColGroups = col_groups(c);
    using Packed = Pack<c.output>;
    constexpr int32_t kGroupBytes = Fragment16x8::kCols * 2, kHalfRows = Fragment16x8::kHalfRows;
    const int32_t lane = threadIdx.x % 32;
    const auto [half, next, line] = Fragment16x8::matrix_line(lane);
#pragma unroll
    for (int32_t j = 0; j < kColGroups; j += 2) {
        const float* values = total + Fragment16x8::pair(chunk * kColGroups + j, 0);
        const uint32_t offset =
            c.swap_ab ? swizzled<kSpan>(((j + next) * Fragment16x8::kCols + line) * kSpan + half * kHalfRows * 2)
                      : swizzled<kSpan>((half * kHalfRows + line) * kSpan + (j + next) * kGroupBytes);
        const uint32_t first = Packed::pack(values[0], values[1]), second = Packed::pack(values[2], values[3]);
        if (j + 1 < kColGroups)
            ptx::store_matrix_x4<c.swap_ab>(buffer + offset, first, second, Packed::pack(values[4], values[5]),
                                            Packed::pack(values[6], values[7]));
        else
            ptx::store_matrix_x2<c.swap_ab>(buffer + offset, first, second);
    }
}

template <Constant<GemmConfig> c>
DG_DEVICE void stage_chunk(uint32_t buffer, const Results<c>& total, int32_t chunk) {
    static_assert(!marks_padding(c) || bits(c.output) == 16, "FP32 of experts is stored from registers");
    if constexpr (bits(c.output) == 32)
        stage_32_bits<c>(buffer, total, chunk);
    else
        stage_16_bits<c>(buffer, total, chunk);
}

/// Where in D a chunk of 16 rows goes: one of those of math warp `warp`, of the `subtile`th 64 rows of its warpgroup.
struct ChunkPlace {
    int32_t x, y;
    bool stored;  // or it is padding, another expert's, another CTA's
};

template <Constant<GemmConfig> c>
DG_DEVICE ChunkPlace place_chunk(const Tile& tile, int32_t warp, int32_t subtile, int32_t chunk) {
    constexpr StoreChunk kChunk = store_chunk(c);
    const int32_t row = tile.row + row_in_tile<c>(warp, subtile);
    const int32_t col = c.d_cols(tile.col) + chunk * kChunk.inner;
    const int32_t x = columns_of_d<c, kChunk.inner>(c.swap_ab ? row : col),
                  y = c.swap_ab ? tile.col + chunk * kChunk.outer : row;
    const bool past = (c.skips_padding || has_expert_runs(c)) && y >= tile.m_end;
    return {x, y, owns<c>(tile, warp, subtile) && !past};
}

/// Issue the copy of a staged chunk. One thread.
template <Constant<GemmConfig> c>
DG_DEVICE void copy_chunk(uint32_t source, const Tile& tile, int32_t warp, int32_t subtile, int32_t chunk,
                          const GemmParams& params) {
    const ChunkPlace at = place_chunk<c>(tile, warp, subtile, chunk);
    if (!at.stored) return;
    if constexpr (adds_to_memory(c.store))
        ptx::add_box(&params.d, source, at.x, at.y, group_of_d<c>(tile));
    else
        ptx::store_box(&params.d, source, at.x, at.y, group_of_d<c>(tile));
}

}  // namespace deep_gemm
