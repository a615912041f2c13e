// Tensor maps on their way to the constant cache before the first copy.
#pragma once

#include <deep_gemm/params.cuh>
#include <deep_gemm/ptx/tma.cuh>

namespace deep_gemm {

/// Those of operands and of D, and of scales that are copied.
template <Constant<GemmConfig> c, bool kRowScales, bool kColScales>
DG_DEVICE void prefetch_maps(const GemmParams& params) {
    if constexpr (!c.group_maps) {
        ptx::prefetch_tensor_map(&params.rows);
        ptx::prefetch_tensor_map(&params.cols);
    }
    if constexpr (kRowScales) ptx::prefetch_tensor_map(&params.row_scales);
    if constexpr (kColScales) ptx::prefetch_tensor_map(&params.col_scales);
    if constexpr (is_staged(c.store)) ptx::prefetch_tensor_map(&params.d);
}

}  // namespace deep_gemm
