// The matrix instruction by what it multiplies: 16 rows by 8 columns by 32 bytes of K.
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/ptx/mma_sync.cuh>

namespace deep_gemm::sm80 {

template <Element kElement, typename Sum>
DG_DEVICE void multiply(Sum (&sums)[4], const uint32_t (&rows)[4], const uint32_t (&cols)[2]) {
    if constexpr (kElement == Element::bf16)
        ptx::mma_bf16(sums, rows, cols);
    else if constexpr (kElement == Element::fp16)
        ptx::mma_f16(sums, rows, cols);
    else if constexpr (kElement == Element::e4m3)
        ptx::mma_e4m3(sums, rows, cols);
    else if constexpr (kElement == Element::s4i)
        ptx::mma_s4_s4(sums, rows, cols);
    else
        ptx::mma_s8_s8(sums, rows, cols);
}

}  // namespace deep_gemm::sm80
