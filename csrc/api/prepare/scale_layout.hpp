// Launches the scale-layout kernels.
#pragma once

#include <deep_gemm/kernels/scale_layout_params.cuh>

#include "../../jit/kernel.hpp"

namespace deep_gemm {

/// Kernels for rows of so many scales.
jit::KernelSources scale_layout_sources(ScaleEncoding encoding, int32_t k_scales, bool in_blocks);

/// `in_blocks`: of kWordBlockRows, of which `padded_rows` is a multiple then.
void launch_scale_layout(Device& device, const ScaleLayoutParams& params, ScaleEncoding encoding, bool in_blocks,
                         void* stream);

/// `gran_k` elements of K share a scale: 16, 32 or 128. `encoding` packs.
void launch_k_grouped_scale_layout(Device& device, const KGroupedScaleLayoutParams& params, int32_t gran_k,
                                   ScaleEncoding encoding, void* stream);

}  // namespace deep_gemm
