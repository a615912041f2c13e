// Hopper: what its kernels can choose beside a tile.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::sm90 {

struct Schedule {
    int32_t math_warpgroups = 2;  // those that take turns included (SplitK::warpgroups)
    bool look_ahead = false;      // a warpgroup finds its next stage while its wgmma run, not after promoting them
    bool wgmma_products =
        false;              // of row and column scales: one TF32 wgmma a K block, not each thread's multiplications
    bool rescales = false;  // sums are those of all groups of K, in units of one scale after the other
    bool promotes_once = false;  // rows have one scale for all of K, and the tensor cores add up all of it

    constexpr bool operator==(const Schedule&) const = default;
};

}  // namespace deep_gemm::sm90
