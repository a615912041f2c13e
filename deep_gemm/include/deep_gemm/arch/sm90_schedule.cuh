// Hopper: what its kernels can choose beside a tile.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::sm90 {

struct Schedule {
    int32_t math_warpgroups = 2;
    int32_t k_warpgroups = 1;    // of them, that take the K blocks of the same rows in turn, and add up at the end
    bool parts_in_ring = false;  // parts of a sum, and D, go where stages were, which leaves room for more stages
    bool look_ahead = false;     // a warpgroup finds its next stage while its wgmma run, not after promoting them
    bool wgmma_products =
        false;  // of row and column scales: one TF32 wgmma a K block, not each thread's multiplications

    constexpr bool operator==(const Schedule&) const = default;
};

}  // namespace deep_gemm::sm90
