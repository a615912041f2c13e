// Multiply one K block on Hopper.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/mma/sm90/fragments.cuh>
#include <deep_gemm/ptx/wgmma.cuh>
#include <deep_gemm/ptx/wgmma_from_registers.cuh>
#include <deep_gemm/ptx/wgmma_integer.cuh>
#include <deep_gemm/ptx/wgmma_integer_from_registers.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

template <bool kMnMajor>
DG_DEVICE uint64_t operand_descriptor(uint32_t address) {
    if constexpr (kMnMajor)
        return ptx::wgmma_descriptor_mn_major(address);
    else
        return ptx::wgmma_descriptor(address);
}

/// The wgmma of a pair of elements: a line for each of Hopper's rows of the pair table (csrc/config/pairs.hpp).
template <Constant<GemmConfig> c>
DG_DEVICE void issue_wgmma(Accumulators<c>& d, uint64_t rows, uint64_t cols, bool accumulate) {
    constexpr int32_t kCols = c.tile.cols;
    using Wgmma = ptx::Wgmma<kCols>;
    constexpr bool kMnMajorRows = c.rows_operand().mn_major(), kMnMajorCols = c.cols_operand().mn_major();
    if constexpr (multiplies(c, Element::e4m3, Element::e4m3))
        Wgmma::e4m3(d, rows, cols, accumulate);
    else if constexpr (multiplies(c, Element::bf16, Element::bf16))
        Wgmma::template bf16<kMnMajorRows, kMnMajorCols>(d, rows, cols, accumulate);
    else if constexpr (multiplies(c, Element::fp16, Element::fp16))
        Wgmma::template f16<kMnMajorRows, kMnMajorCols>(d, rows, cols, accumulate);
    else if constexpr (multiplies(c, Element::s8, Element::s8))
        ptx::WgmmaInteger<kCols>::s8_s8(d, rows, cols, accumulate);
    else
        static_assert(kCols == 0, "no wgmma multiplies these elements");
}

/// Issue the wgmma of one K block: 64 rows x the tile's columns, four steps of 32 bytes. The first clears unless
/// `accumulate`.
template <Constant<GemmConfig> c>
DG_DEVICE void multiply_block(Accumulators<c>& d, uint32_t rows, uint32_t cols, bool accumulate) {
    constexpr bool kMnMajorRows = c.rows_operand().mn_major(), kMnMajorCols = c.cols_operand().mn_major();
    const uint64_t rows_descriptor = operand_descriptor<kMnMajorRows>(rows),
                   cols_descriptor = operand_descriptor<kMnMajorCols>(cols);
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; ++i) ptx::pin(d[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int32_t step = 0; step < kSwizzleBytes / 32; ++step) {
        // In units of 16 bytes: 32 bytes of each row's span, or 16 lines of K.
        constexpr int32_t kAlongSpan = 32 >> 4, kAlongLines = 16 * kSwizzleBytes >> 4;
        const uint64_t rows_step = rows_descriptor + step * (kMnMajorRows ? kAlongLines : kAlongSpan),
                       cols_step = cols_descriptor + step * (kMnMajorCols ? kAlongLines : kAlongSpan);
        issue_wgmma<c>(d, rows_step, cols_step, accumulate || step);
    }
    ptx::wgmma_commit();
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; ++i) ptx::pin(d[i]);
}

/// The same of one of a K block's `kGroups` groups of K, which has sums of its own.
template <Constant<GemmConfig> c, int32_t kGroups>
DG_DEVICE void multiply_group(Accumulators<c>& d, uint32_t rows, uint32_t cols, int32_t group) {
    static_assert(!c.rows_operand().mn_major() && !c.cols_operand().mn_major());
    constexpr int32_t kSteps = kSwizzleBytes / 32 / kGroups, kAlongSpan = 32 >> 4;
    const uint64_t rows_descriptor = ptx::wgmma_descriptor(rows), cols_descriptor = ptx::wgmma_descriptor(cols);
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; ++i) ptx::pin(d[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int32_t step = 0; step < kSteps; ++step) {
        const int32_t at = (group * kSteps + step) * kAlongSpan;
        issue_wgmma<c>(d, rows_descriptor + at, cols_descriptor + at, step > 0);
    }
    ptx::wgmma_commit();
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; ++i) ptx::pin(d[i]);
}

/// The wgmma of one step, rows in registers.
template <Constant<GemmConfig> c>
DG_DEVICE void issue_wgmma(Accumulators<c>& d, const uint32_t (&rows)[4], uint64_t cols, bool accumulate) {
    constexpr Element kElement = c.cols_operand().element;
    using Wgmma = ptx::WgmmaFromRegisters<c.tile.cols>;
    if constexpr (kElement == Element::e4m3)
        Wgmma::e4m3(d, rows, cols, accumulate);
    else if constexpr (kElement == Element::bf16)
        Wgmma::template bf16<false>(d, rows, cols, accumulate);
    else if constexpr (kElement == Element::fp16)
        Wgmma::template f16<false>(d, rows, cols, accumulate);
    else if constexpr (kElement == Element::s8)
        ptx::WgmmaIntegerFromRegisters<c.tile.cols>::s8_s8(d, rows, cols, accumulate);
    else
        static_assert(c.tile.cols == 0, "no wgmma multiplies packed weights by these elements");
}

/// How far a step's columns are from the first one's, in a descriptor: in units of 16 bytes.
template <Constant<GemmConfig> c>
DG_DEVICE constexpr uint64_t step_distance(int32_t step) {
    constexpr int32_t kSpanSteps = kSwizzleBytes / 32;
    return (step / kSpanSteps * col_span_bytes(c) + step % kSpanSteps * 32) >> 4;
}

/// One K block with rows in registers.
template <Constant<GemmConfig> c>
DG_DEVICE void multiply_block(Accumulators<c>& d, Fragments<c>& rows, uint32_t cols, bool accumulate) {
    const uint64_t descriptor = ptx::wgmma_descriptor(cols);
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; ++i) ptx::pin(d[i]);
    rows.pin();
    ptx::wgmma_fence();
#pragma unroll
    for (int32_t step = 0; step < Fragments<c>::kSteps; ++step)
        issue_wgmma<c>(d, rows.words[step], descriptor + step_distance<c>(step), accumulate || step);
    ptx::wgmma_commit();
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; ++i) ptx::pin(d[i]);
}

/// The same of a part of the K block: `kSteps` steps from `first` on.
template <Constant<GemmConfig> c, int32_t kSteps>
DG_DEVICE void multiply_steps(Accumulators<c>& d, Fragments<c>& rows, uint32_t cols, int32_t first) {
    const uint64_t descriptor = ptx::wgmma_descriptor(cols);
#pragma unroll
    for (int32_t step = 0; step < kSteps; ++step)
        issue_wgmma<c>(d, rows.words[first + step], descriptor + step_distance<c>(first + step), step > 0);
}

/// Wait for all wgmma groups but the last kPending; from here these accumulators may be read.
template <int32_t kPending, int32_t kCount, typename Sum>
DG_DEVICE void finish_block(Sum (&d)[kCount]) {
    ptx::wgmma_wait<kPending>();
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) ptx::pin(d[i]);
}

}  // namespace deep_gemm
