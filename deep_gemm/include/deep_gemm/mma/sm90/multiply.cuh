// Multiply one K block on Hopper.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/ptx/wgmma.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

template <bool kMnMajor>
DG_DEVICE uint64_t operand_descriptor(uint32_t address) {
    if constexpr (kMnMajor)
        return ptx::wgmma_descriptor_mn_major(address);
    else
        return ptx::wgmma_descriptor(address);
}

/// Issue the wgmma of one K block: 64 rows x the tile's columns, four steps of 32 bytes. The first clears unless
/// `accumulate`.
template <GemmConfig c>
DG_DEVICE void multiply_block(Accumulators<c>& d, uint32_t rows, uint32_t cols, bool accumulate) {
    constexpr int32_t kCols = c.tile.cols;
    constexpr bool kMnMajorRows = c.rows_operand().mn_major(), kMnMajorCols = c.cols_operand().mn_major();
    const uint64_t rows_descriptor = operand_descriptor<kMnMajorRows>(rows),
                   cols_descriptor = operand_descriptor<kMnMajorCols>(cols);
#pragma unroll
    for (int32_t i = 0; i < kCols / 2; ++i) ptx::pin(d[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int32_t step = 0; step < kSwizzleBytes / 32; ++step) {
        // In units of 16 bytes: 32 bytes of each row's span, or 16 lines of K.
        constexpr int32_t kAlongSpan = 32 >> 4, kAlongLines = 16 * kSwizzleBytes >> 4;
        const uint64_t rows_step = rows_descriptor + step * (kMnMajorRows ? kAlongLines : kAlongSpan),
                       cols_step = cols_descriptor + step * (kMnMajorCols ? kAlongLines : kAlongSpan);
        if constexpr (c.a.element == Element::e4m3)
            ptx::Wgmma<kCols>::e4m3(d, rows_step, cols_step, accumulate || step);
        else
            ptx::Wgmma<kCols>::template bf16<kMnMajorRows, kMnMajorCols>(d, rows_step, cols_step, accumulate || step);
    }
    ptx::wgmma_commit();
#pragma unroll
    for (int32_t i = 0; i < kCols / 2; ++i) ptx::pin(d[i]);
}

/// Wait for all wgmma groups but the last kPending; from here these accumulators may be read.
template <int32_t kPending, int32_t kCount>
DG_DEVICE void finish_block(float (&d)[kCount]) {
    ptx::wgmma_wait<kPending>();
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) ptx::pin(d[i]);
}

}  // namespace deep_gemm
