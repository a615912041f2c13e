// ldmatrix: 8x8 matrices of 16-bit elements (8 rows of 16 bytes) from shared memory to the lanes of a warp.
//
// Lane l gives the address of row l % 8 of matrix l / 8, and receives of each matrix the elements 2 (l % 4) and the
// next one of row l / 4; transposed, of column l / 4.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// ldmatrix.sync.aligned.m8n8.x4: the quarters of 16 x 16 elements make operand A of mma.sync, in the order upper left,
/// lower left, upper right, lower right, where rows are M. Of MN-major A rows are K: upper right before lower left.
template <bool kTransposed>
DG_DEVICE void load_matrix_x4(uint32_t address, uint32_t (&words)[4]) {
    if constexpr (kTransposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address)
                     : "memory");
}

/// ldmatrix.sync.aligned.m8n8.x2: of two matrices; the addresses of lanes 16 and up are ignored.
template <bool kTransposed>
DG_DEVICE void load_matrix_x2(uint32_t address, uint32_t (&words)[2]) {
    if constexpr (kTransposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(words[0]), "=r"(words[1])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(words[0]), "=r"(words[1])
                     : "r"(address)
                     : "memory");
}

/// ldmatrix.sync.aligned.m8n16: 8 rows of 16 codes of four bits, in the first half of 16 bytes each; a lane receives of
/// row l / 4 codes 4 (l % 4) and the next three, each in the low half of a byte. sm_120a and sm_121a have it.
DG_DEVICE void load_fp4_matrix_x4(uint32_t address, uint32_t (&words)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}
DG_DEVICE void load_fp4_matrix_x2(uint32_t address, uint32_t (&words)[2]) {
    asm volatile("ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b4x16_p64 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(address)
                 : "memory");
}

}  // namespace deep_gemm::ptx
