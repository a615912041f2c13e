// The chunks in which the copy engine takes D away.
#pragma once

#include <deep_gemm/arch/sm90.cuh>
#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm {

/// Of a wide swapped tile: few buffers then do, beside a deep ring. And behind 64 tokens an expert's run may end.
inline constexpr int32_t kChunkTokens = 64;
static_assert(kRunRows % kChunkTokens == 0);

/// Each math warp stages its 16 rows of D in chunks of one swizzle span.
constexpr StoreChunk store_chunk(const GemmConfig& c) {
    const int32_t size = bytes_of(c.output, 1);
    if (c.swap_ab) {
        const bool divided = c.stages_of_block() > 1 || has_expert_runs(c);
        const int32_t tokens = divided ? gcd(c.tile.cols, kChunkTokens) : c.tile.cols;
        return {Fragment16x8::kRows, tokens, c.tile.cols / tokens, size};
    }
    const int32_t cols = c.d_cols(c.tile.cols), inner = gcd(cols, kSwizzleBytes / size);
    return {inner, Fragment16x8::kRows, cols / inner, size};
}

/// Chunks that a warp stores for one tile.
constexpr int32_t store_chunks_per_tile(const GemmConfig& c) {
    return warpgroup_rows(c) / kWgmmaRows * store_chunk(c).count;
}

constexpr int32_t staging_bytes_per_warp(const GemmConfig& c) {
    return is_staged(c.store) ? c.store.buffers * store_chunk(c).bytes() : 0;
}
constexpr int32_t staging_bytes(const GemmConfig& c) {
    return align_up(c.sm90.math_warpgroups * 4 * staging_bytes_per_warp(c), 1024);
}

}  // namespace deep_gemm
