// A checked call: what every later step reads. Nothing here is a tensor any more.
#pragma once

#include <deep_gemm/params.cuh>

#include "../config/problem.hpp"
#include "tensors.hpp"

namespace deep_gemm {

/// FP32 scales of one operand, in elements. `granularity` rows share one scale; along K it is always 128.
struct Scales {
    const float* data = nullptr;
    ScaleKind kind = ScaleKind::none;
    int64_t groups = 1, rows = 0, k_scales = 0;
    int64_t group_stride = 0, row_stride = 1, k_stride = 0;
    size_t bytes = 0;
};

struct GemmCall {
    Problem problem = {};
    DeviceId device = {};
    Matrix a = {}, b = {}, d = {}, c = {};  // a [M, K], b [N, K], d [M, N], c like d (null data where there is none)
    Scales scales_a = {}, scales_b = {};
    const int32_t* grouped_layout = nullptr;
    size_t grouped_layout_bytes = 0;
    KGroupLayout k_groups = {};  // K-grouped calls only
    bool zero_padding = false;   // psum layout: rows between a group's end and the next group's start become zero
};

}  // namespace deep_gemm
