// Where in D a column of the product lies: not in its place, where D's columns belong to heads (HeadSplits).
#pragma once

#include <deep_gemm/config.cuh>

namespace deep_gemm {

template <GemmConfig c>
DG_DEVICE int32_t column_of_d(int32_t col) {
    return c.heads.any() ? c.heads.place(col) : col;
}

/// Of `kCols` columns side by side, which are all of one part of a head.
template <GemmConfig c, int32_t kCols>
DG_DEVICE int32_t columns_of_d(int32_t first) {
    static_assert(!c.heads.any() || (c.heads.left % kCols == 0 && c.heads.right % kCols == 0),
                  "columns are of one part");
    return column_of_d<c>(first);
}

}  // namespace deep_gemm
