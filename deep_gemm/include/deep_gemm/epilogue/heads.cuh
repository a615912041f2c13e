// Where in D a column of the product lies: not in its place, where D's columns belong to heads (HeadSplits). And where
// in C, the bias and scales of B, which lie as B's rows do: not in its place, where tiles have gates and ups (Gated).
#pragma once

#include <deep_gemm/config.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
DG_DEVICE int32_t column_of_d(int32_t col) {
    return c.heads.any() ? c.heads.place(col) : col;
}

template <Constant<GemmConfig> c>
DG_DEVICE int32_t row_of_b(int32_t col, int32_t n) {
    return c.gate.row_of_b(col, n);
}
template <Constant<GemmConfig> c>
DG_DEVICE int32_t channel_of(int32_t col, int32_t n) {
    return c.gate.channel(col, n);
}

/// Of `kCols` columns side by side, which are all of one part of a head.
template <Constant<GemmConfig> c, int32_t kCols>
DG_DEVICE int32_t columns_of_d(int32_t first) {
    static_assert(!c.heads.any() || (c.heads.left % kCols == 0 && c.heads.right % kCols == 0),
                  "columns are of one part");
    return column_of_d<c>(first);
}

}  // namespace deep_gemm
