// The matrix instruction by what it multiplies: 16 rows by 8 columns by 32 bytes of K.
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/ptx/mma_block_scaled.cuh>
#include <deep_gemm/ptx/mma_sync.cuh>

namespace deep_gemm::sm80 {

#if defined(__CUDA_ARCH_FEAT_SM120_ALL) || __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1200
inline constexpr bool kScalesBlocks = true;  // sm_120a, sm_121a
#else
inline constexpr bool kScalesBlocks = false;
#endif
inline constexpr uint32_t kOnes = 0x7f7f7f7f;  // UE8M0

/// Where blocks can be scaled, the plain instruction has half of the rate (published; not measured here): that one with
/// scales of one adds up the same products.
template <bool kBlocks>
DG_DEVICE void multiply_e4m3(float (&sums)[4], const uint32_t (&rows)[4], const uint32_t (&cols)[2]) {
    if constexpr (kBlocks)
        ptx::mma_mx_e4m3_e4m3(sums, rows, cols, kOnes, {0, 0}, kOnes, {0, 0});
    else
        ptx::mma_e4m3(sums, rows, cols);
}

template <Element kElement, typename Sum>
DG_DEVICE void multiply(Sum (&sums)[4], const uint32_t (&rows)[4], const uint32_t (&cols)[2]) {
    if constexpr (kElement == Element::bf16)
        ptx::mma_bf16(sums, rows, cols);
    else if constexpr (kElement == Element::fp16)
        ptx::mma_f16(sums, rows, cols);
    else if constexpr (kElement == Element::e4m3)
        multiply_e4m3<kScalesBlocks>(sums, rows, cols);
    else if constexpr (kElement == Element::s4i)
        ptx::mma_s4_s4(sums, rows, cols);
    else
        ptx::mma_s8_s8(sums, rows, cols);
}

}  // namespace deep_gemm::sm80
