// B where tiles have gates and ups, by the copy engine: a map lays them side by side, 8 and 8 (gated_map,
// csrc/api/run/params.cpp).
#pragma once

#include <deep_gemm/config.cuh>

namespace deep_gemm {

/// copy(first of the boxes' rows, and where it lies: its pair of a gate and an up, its group of 8 pairs) of each box of
/// `kExtent` rows that begin with `start`.
template <Constant<GemmConfig> c, int32_t kExtent, typename Copy>
DG_DEVICE void for_each_gated_box(int32_t start, const Copy& copy) {
    constexpr int32_t kPairs = 2 * kGateCols, kBox = c.gate.copied_at_once(kExtent);
    static_assert(kExtent % kPairs == 0, "a box has whole groups of gates and ups");
#pragma unroll 1
    for (int32_t row = 0; row < kExtent; row += kBox)
        copy(row, c.gate.partial ? (start + row) / 2 : 0, c.gate.partial ? 0 : (start + row) / kPairs);
}

}  // namespace deep_gemm
