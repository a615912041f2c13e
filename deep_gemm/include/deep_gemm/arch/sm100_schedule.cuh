// SM100: what its kernels can choose beside a tile.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::sm100 {

struct Schedule {
    int32_t accumulators = 2;  // in tensor memory: with two, a tile is stored while the next one is multiplied
    // Words of scales come as tensor memory wants them: blocks of 128 rows, row r at word r % 32 * 4 + r / 32.
    // Otherwise they lie MN-major, and a warp transposes each block.
    bool row_blocks = false, col_blocks = false;

    constexpr bool operator==(const Schedule&) const = default;
};

}  // namespace deep_gemm::sm100
