// Add up the parts of a product that was split along K, each time in the same order: equal bits from run to run.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/kernels/add_parts_params.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

/// Parts that a thread has on their way from memory.
inline constexpr int32_t kPartsAtOnce = 8;

template <Constant<AddPartsConfig> kConfig>
DG_DEVICE void run_add_parts(const AddPartsParams& params) {
    using Stored = StorageOf<kConfig.output>;
    const int64_t index = static_cast<int64_t>(blockIdx.x) * kAddPartsThreads + threadIdx.x;
    const int64_t row = index / params.cols, col = index - row * params.cols;
    ptx::wait_for_previous_grid();
    if (row >= params.rows) return;
    const float* part = params.parts + row * params.part_row_stride + col;
    float sum = 0.0f;
    if constexpr (kConfig.add_c)
        sum = to_register<kConfig.output>(static_cast<const Stored*>(params.c)[row * params.c_stride + col]);
    for (int32_t first = 0; first < params.num_parts;
         first += kPartsAtOnce, part += kPartsAtOnce * params.part_stride) {
        float values[kPartsAtOnce];
#pragma unroll
        for (int32_t i = 0; i < kPartsAtOnce; ++i)
            values[i] = first + i < params.num_parts ? part[i * params.part_stride] : 0.0f;
#pragma unroll
        for (int32_t i = 0; i < kPartsAtOnce; ++i) sum += values[i];
    }
    from_register<kConfig.output>(static_cast<Stored*>(params.d)[row * params.d_stride + col], sum);
}

}  // namespace deep_gemm
