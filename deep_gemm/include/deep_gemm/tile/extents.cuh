// Extents of D that the compiler may know.
#pragma once

#include <deep_gemm/params.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
DG_DEVICE int32_t extent_m(const GemmParams& params) {
    return c.shape.m ? c.shape.m : params.m;
}
template <Constant<GemmConfig> c>
DG_DEVICE int32_t extent_n(const GemmParams& params) {
    return c.shape.n ? c.shape.n : params.n;
}

}  // namespace deep_gemm
