// wgmma of 8-bit integers with A in registers, held as in wgmma_from_registers.cuh.
#pragma once

#include <deep_gemm/ptx/wgmma.cuh>

namespace deep_gemm::ptx {

/// D[64, N] = A B^T (+ D if `accumulate`), K = 32, exact in 32 bits; B K-major. `s8_u8`: A signed, B unsigned.
template <int kN>
struct WgmmaIntegerFromRegisters;

// clang-format off
#define DG_WGMMA_KIND(a_type, b_type, n, registers, a0, a1, a2, a3, b, p)                                             \
        DG_DEVICE static void a_type##_##b_type(int32_t* d, const uint32_t (&a)[4], uint64_t cols, int accumulate) {  \
            asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #p ", 0;\n wgmma.mma_async.sync.aligned.m64n" #n      \
                         "k32.s32." #a_type "." #b_type " {" DG_D_##registers "}, {%" #a0 ", %" #a1 ", %" #a2 ", %"   \
                         #a3 "}, %" #b ", p;\n}\n"                                                                    \
                         : DG_O_##registers("+r")                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(cols), "r"(accumulate));                   \
        }
#define DG_WGMMA(n, registers, a0, a1, a2, a3, b, p)                                                                  \
    template <>                                                                                                       \
    struct WgmmaIntegerFromRegisters<n> {                                                                             \
        DG_WGMMA_KIND(s8, s8, n, registers, a0, a1, a2, a3, b, p)                                                     \
        DG_WGMMA_KIND(s8, u8, n, registers, a0, a1, a2, a3, b, p)                                                     \
        DG_WGMMA_KIND(u8, s8, n, registers, a0, a1, a2, a3, b, p)                                                     \
        DG_WGMMA_KIND(u8, u8, n, registers, a0, a1, a2, a3, b, p)                                                     \
    };

DG_WGMMA(8, 4, 4, 5, 6, 7, 8, 9)
DG_WGMMA(16, 8, 8, 9, 10, 11, 12, 13)
DG_WGMMA(24, 12, 12, 13, 14, 15, 16, 17)
DG_WGMMA(32, 16, 16, 17, 18, 19, 20, 21)
DG_WGMMA(48, 24, 24, 25, 26, 27, 28, 29)
DG_WGMMA(64, 32, 32, 33, 34, 35, 36, 37)
DG_WGMMA(80, 40, 40, 41, 42, 43, 44, 45)
DG_WGMMA(96, 48, 48, 49, 50, 51, 52, 53)
DG_WGMMA(112, 56, 56, 57, 58, 59, 60, 61)
DG_WGMMA(128, 64, 64, 65, 66, 67, 68, 69)
DG_WGMMA(144, 72, 72, 73, 74, 75, 76, 77)
DG_WGMMA(160, 80, 80, 81, 82, 83, 84, 85)
DG_WGMMA(176, 88, 88, 89, 90, 91, 92, 93)
DG_WGMMA(192, 96, 96, 97, 98, 99, 100, 101)
DG_WGMMA(208, 104, 104, 105, 106, 107, 108, 109)
DG_WGMMA(224, 112, 112, 113, 114, 115, 116, 117)
DG_WGMMA(240, 120, 120, 121, 122, 123, 124, 125)
DG_WGMMA(256, 128, 128, 129, 130, 131, 132, 133)

// clang-format on
#undef DG_WGMMA
#undef DG_WGMMA_KIND

}  // namespace deep_gemm::ptx
