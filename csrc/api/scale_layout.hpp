// Launches the scale-layout kernels.
#pragma once

#include <deep_gemm/kernels/scale_layout_params.cuh>

#include "../device/device.hpp"

namespace deep_gemm {

void launch_scale_layout(Device& device, const ScaleLayoutParams& params, ScaleEncoding encoding, void* stream);

/// `gran_k` elements of K share a scale: 32 or 128.
void launch_k_grouped_scale_layout(Device& device, const KGroupedScaleLayoutParams& params, int32_t gran_k,
                                   void* stream);

}  // namespace deep_gemm
