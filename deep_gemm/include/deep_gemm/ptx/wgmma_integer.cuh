// wgmma of 8-bit integers: exact sums in 32 bits, which wrap around. A from shared memory or from registers.
#pragma once

#include <deep_gemm/ptx/wgmma.cuh>

namespace deep_gemm::ptx {

/// D[64, N] = A B^T (+ D if `accumulate`), K = 32 a step, both operands K-major. `s8_u8`: A signed, B unsigned.
template <int kN>
struct WgmmaInteger;

// clang-format off
#define DG_WGMMA_KIND(a_type, b_type, n, registers, a, b, p)                                                          \
        DG_DEVICE static void a_type##_##b_type(int32_t* d, uint64_t rows, uint64_t cols, int accumulate) {           \
            asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #p ", 0;\n wgmma.mma_async.sync.aligned.m64n" #n      \
                         "k32.s32." #a_type "." #b_type " {" DG_D_##registers "}, %" #a ", %" #b ", p;\n}\n"          \
                         : DG_O_##registers("+r")                                                                     \
                         : "l"(rows), "l"(cols), "r"(accumulate));                                                    \
        }
#define DG_WGMMA(n, registers, a, b, p)                                                                               \
    template <>                                                                                                       \
    struct WgmmaInteger<n> {                                                                                          \
        DG_WGMMA_KIND(s8, s8, n, registers, a, b, p)                                                                  \
        DG_WGMMA_KIND(s8, u8, n, registers, a, b, p)                                                                  \
        DG_WGMMA_KIND(u8, s8, n, registers, a, b, p)                                                                  \
        DG_WGMMA_KIND(u8, u8, n, registers, a, b, p)                                                                  \
    };

DG_WGMMA(8, 4, 4, 5, 6)
DG_WGMMA(16, 8, 8, 9, 10)
DG_WGMMA(24, 12, 12, 13, 14)
DG_WGMMA(32, 16, 16, 17, 18)
DG_WGMMA(48, 24, 24, 25, 26)
DG_WGMMA(64, 32, 32, 33, 34)
DG_WGMMA(80, 40, 40, 41, 42)
DG_WGMMA(96, 48, 48, 49, 50)
DG_WGMMA(112, 56, 56, 57, 58)
DG_WGMMA(128, 64, 64, 65, 66)
DG_WGMMA(144, 72, 72, 73, 74)
DG_WGMMA(160, 80, 80, 81, 82)
DG_WGMMA(176, 88, 88, 89, 90)
DG_WGMMA(192, 96, 96, 97, 98)
DG_WGMMA(208, 104, 104, 105, 106)
DG_WGMMA(224, 112, 112, 113, 114)
DG_WGMMA(240, 120, 120, 121, 122)
DG_WGMMA(256, 128, 128, 129, 130)

// clang-format on
#undef DG_WGMMA
#undef DG_WGMMA_KIND

}  // namespace deep_gemm::ptx
