// Which rows of a tile exist, where only the device knows.
#pragma once

#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/quantize/config.cuh>

namespace deep_gemm {

/// How many rows of a matrix exist, where all that do come first.
template <Constant<QuantizeConfig> c>
DG_DEVICE int32_t rows_of_matrix(const QuantizeParams& params, int32_t matrix) {
    if constexpr (c.layout == RowLayout::masked) return min(ptx::load_global_int(params.layout + matrix), params.rows);
    return params.rows;
}

/// A bit for each of kRows rows from `first` on, at a multiple of kRows. All lanes of a warp ask for the same ones.
template <Constant<QuantizeConfig> c, int32_t kRows>
DG_DEVICE uint32_t existing_rows(const QuantizeParams& params, int32_t first, int32_t end) {
    static_assert(kMaxTileRows % kRows == 0, "an expert begins where a tile does");
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), row = first + lane;
    bool exists = lane < kRows && row < end;
    if constexpr (c.layout == RowLayout::contiguous) {
        exists = exists && ptx::load_global_int(params.layout + row) >= 0;
    } else if constexpr (c.layout == RowLayout::psum) {
        // The expert is the first that ends behind the tile's first row.
        int32_t expert = 0;
#pragma unroll 4
        for (int32_t i = 0; i < params.num_experts; i += 32) {
            const bool known = i + lane < params.num_experts;
            const bool before = known && ptx::load_global_int(params.layout + i + lane) <= first;
            expert += __popc(__ballot_sync(0xffffffff, before));
        }
        const int32_t previous = expert == 0 ? 0 : ptx::load_global_int(params.layout + expert - 1);
        const int32_t begin = (previous + params.alignment - 1) / params.alignment * params.alignment;
        exists =
            exists && expert < params.num_experts && row >= begin && row < ptx::load_global_int(params.layout + expert);
    }
    return __ballot_sync(0xffffffff, exists);
}

}  // namespace deep_gemm
