// wgmma with A in registers, where a conversion has put it.
//
// Of 64 rows by 32 bytes of K, thread t holds four words: a[0] and a[1] bytes 4 (t % 4) and up of rows
// 16 (t / 32) + (t % 32) / 4 and 8 more; a[2] and a[3] the same 16 bytes further on. They may be written again once the
// wgmma is waited for; pin() each before and behind.
#pragma once

#include <deep_gemm/ptx/wgmma.cuh>

namespace deep_gemm::ptx {

/// D[64, N] = A B^T (+ D if `accumulate`), FP32 accumulators; B as Wgmma takes it.
template <int kN>
struct WgmmaFromRegisters;

// clang-format off
#define DG_COMMA ,
#define DG_WGMMA_ASM(registers, a0, a1, a2, a3, b, p, instruction, tail, ...)                                         \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #p ", 0;\n " instruction " {" DG_D_##registers                \
                 "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p, 1, 1" tail ";\n}\n"                        \
                 : DG_O_##registers("+f")                                                                             \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(cols), "r"(accumulate) __VA_ARGS__)
#define DG_WGMMA_16_BIT(type, n, registers, a0, a1, a2, a3, b, p, t)                                                  \
        template <bool kMnMajorCols>                                                                                  \
        DG_DEVICE static void type(float* d, const uint32_t (&a)[4], uint64_t cols, int accumulate) {                 \
            DG_WGMMA_ASM(registers, a0, a1, a2, a3, b, p,                                                             \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type, ", %" #t,                 \
                         DG_COMMA "n"(int(kMnMajorCols)));                                                            \
        }
#define DG_WGMMA(n, registers, a0, a1, a2, a3, b, p, t)                                                               \
    template <>                                                                                                       \
    struct WgmmaFromRegisters<n> {                                                                                    \
        DG_DEVICE static void e4m3(float* d, const uint32_t (&a)[4], uint64_t cols, int accumulate) {                 \
            DG_WGMMA_ASM(registers, a0, a1, a2, a3, b, p,                                                             \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3", "");                             \
        }                                                                                                             \
        DG_WGMMA_16_BIT(bf16, n, registers, a0, a1, a2, a3, b, p, t)                                                  \
        DG_WGMMA_16_BIT(f16, n, registers, a0, a1, a2, a3, b, p, t)                                                   \
    };

DG_WGMMA(8, 4, 4, 5, 6, 7, 8, 9, 10)
DG_WGMMA(16, 8, 8, 9, 10, 11, 12, 13, 14)
DG_WGMMA(24, 12, 12, 13, 14, 15, 16, 17, 18)
DG_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22)
DG_WGMMA(40, 20, 20, 21, 22, 23, 24, 25, 26)
DG_WGMMA(48, 24, 24, 25, 26, 27, 28, 29, 30)
DG_WGMMA(56, 28, 28, 29, 30, 31, 32, 33, 34)
DG_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
DG_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46)
DG_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54)
DG_WGMMA(112, 56, 56, 57, 58, 59, 60, 61, 62)
DG_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)
DG_WGMMA(144, 72, 72, 73, 74, 75, 76, 77, 78)
DG_WGMMA(160, 80, 80, 81, 82, 83, 84, 85, 86)
DG_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94)
DG_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102)
DG_WGMMA(208, 104, 104, 105, 106, 107, 108, 109, 110)
DG_WGMMA(224, 112, 112, 113, 114, 115, 116, 117, 118)
DG_WGMMA(240, 120, 120, 121, 122, 123, 124, 125, 126)
DG_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134)

// clang-format on
#undef DG_WGMMA
#undef DG_WGMMA_16_BIT
#undef DG_COMMA
#undef DG_WGMMA_ASM

}  // namespace deep_gemm::ptx
