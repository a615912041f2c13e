// Add up each row of integers: what a zero point of the other operand's rows is multiplied by.
//
// A warp has a row. Its lanes add up in the same order each time: equal bits from run to run.
#pragma once

#include <deep_gemm/kernels/row_sums_params.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

/// The sum of up to four bytes.
DG_DEVICE int32_t sum_of_bytes(const int8_t* bytes, int32_t count) {
    if (count >= 4) return __dp4a(*reinterpret_cast<const int32_t*>(bytes), 0x01010101, 0);
    int32_t sum = 0;
    for (int32_t i = 0; i < count; ++i) sum += bytes[i];
    return sum;
}

template <RowSumsConfig kConfig>
DG_DEVICE void run_row_sums(const RowSumsParams& params) {
    const uint32_t row = blockIdx.x * kRowSumsWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
    ptx::wait_for_previous_grid();
    if (row >= params.all_rows) return;
    const uint32_t group = row / params.rows, in_group = row - group * params.rows;
    const int8_t* values = params.values + group * params.group_stride + in_group * params.row_stride;
    const float* scales =
        params.scales + group * params.scale_group_stride + in_group / params.rows_per_scale * params.scale_row_stride;
    int32_t exact = 0;
    float scaled = 0.0f;
    for (int32_t first = 0; first < params.k; first += kRowSumsStep) {
        const int32_t at = first + static_cast<int32_t>(lane) * 4;
        const int32_t sum = sum_of_bytes(values + at, params.k - at);
        if constexpr (kConfig.scaled)
            scaled = __fmaf_rn(static_cast<float>(sum), scales[first / kRowSumsStep * params.scale_k_stride], scaled);
        else
            exact += sum;
    }
#pragma unroll
    for (int32_t other = 16; other > 0; other /= 2) {
        if constexpr (kConfig.scaled)
            scaled += __shfl_xor_sync(0xffffffff, scaled, other);
        else
            exact += __shfl_xor_sync(0xffffffff, exact, other);
    }
    if (lane != 0) return;
    if constexpr (kConfig.scaled)
        static_cast<float*>(params.sums)[row] = scaled;
    else
        static_cast<int32_t*>(params.sums)[row] = exact;
}

}  // namespace deep_gemm
