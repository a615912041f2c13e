// Add up each row of integers: what a zero point of the other operand's rows is multiplied by.
//
// A warp has a row. Its lanes add up in the same order each time: equal bits from run to run.
#pragma once

#include <deep_gemm/kernels/row_sums_params.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

DG_DEVICE int32_t sum_of_bytes(const int4& piece) {
    constexpr int32_t kOnes = 0x01010101;
    return __dp4a(piece.x, kOnes, __dp4a(piece.y, kOnes, __dp4a(piece.z, kOnes, __dp4a(piece.w, kOnes, 0))));
}

template <Constant<RowSumsConfig> kConfig>
DG_DEVICE void run_row_sums(const RowSumsParams& params) {
    const uint32_t row = blockIdx.x * kRowSumsWarps + threadIdx.x / 32;
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
    ptx::wait_for_previous_grid();
    if (row >= params.all_rows) return;
    const uint32_t group = row / params.rows, in_group = row - group * params.rows;
    const int8_t* values = params.values + group * params.group_stride + in_group * params.row_stride;
    const float* scales =
        params.scales + group * params.scale_group_stride + in_group / params.rows_per_scale * params.scale_row_stride;
    int32_t exact = 0;
    float scaled = 0.0f;
    const auto add = [&](int32_t sum, float scale) {
        if constexpr (kConfig.scaled)
            scaled = __fmaf_rn(static_cast<float>(sum), scale, scaled);
        else
            exact += sum;
    };
    const int32_t whole = params.k - params.k % kRowSumsPiece;
    // Behind the end zeros are added: with a question for each piece, loads would wait for one another.
#pragma unroll 1
    for (int32_t first = lane * kRowSumsPiece; first < whole; first += kRowSumsAhead * kRowSumsStep) {
        int4 pieces[kRowSumsAhead];
        float scale_of[kRowSumsAhead];
#pragma unroll
        for (int32_t i = 0; i < kRowSumsAhead; ++i) {
            const int32_t at = first + i * kRowSumsStep;
            pieces[i] = at < whole ? *reinterpret_cast<const int4*>(values + at) : int4{};
            if constexpr (kConfig.scaled)
                scale_of[i] = at < whole ? scales[at / kRowSumsScaleK * params.scale_k_stride] : 0.0f;
        }
#pragma unroll
        for (int32_t i = 0; i < kRowSumsAhead; ++i) add(sum_of_bytes(pieces[i]), kConfig.scaled ? scale_of[i] : 1.0f);
    }
    if (const int32_t at = whole + lane; at < params.k)
        add(values[at], kConfig.scaled ? scales[at / kRowSumsScaleK * params.scale_k_stride] : 1.0f);
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
