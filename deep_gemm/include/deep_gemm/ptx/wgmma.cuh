// wgmma: a warpgroup multiplies a 64 x K tile by a K x N tile, both in shared memory, into its registers.
//
// One specialisation per N, since the manual wants each accumulator register named. Thread t holds register i for row
// 16 (t / 32) + (t % 32) / 4 + 8 ((i / 2) % 2) and column 8 (i / 4) + 2 (t % 4) + i % 2.
#pragma once

#include <deep_gemm/ptx/wgmma_registers.cuh>
#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// wgmma.fence: registers and shared memory written so far are ordered before the next wgmma.
DG_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// wgmma.commit_group: the wgmma issued so far form a group.
DG_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// wgmma.wait_group: all groups but the last kPending are done.
template <int kPending>
DG_DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving accesses of an accumulator register across this point; no instruction.
DG_DEVICE void pin(float& accumulator) { asm volatile("" : "+f"(accumulator)::"memory"); }
DG_DEVICE void pin(int32_t& accumulator) { asm volatile("" : "+r"(accumulator)::"memory"); }

/// The same for a register of A: while a wgmma may still read it, nothing else is kept there.
DG_DEVICE void pin(uint32_t& fragment) { asm volatile("" : "+r"(fragment)::"memory"); }

/// Shared-memory descriptor of a K-major operand with 128-byte swizzle: eight rows of 128 bytes are 1024 bytes apart.
/// Advance by 32 bytes for the next K step within the span.
DG_DEVICE uint64_t wgmma_descriptor(uint32_t address) {
    constexpr uint64_t kStride = 1024 >> 4, kSwizzle128 = 1;
    return ((address & 0x3ffff) >> 4) | (1ull << 16) | (kStride << 32) | (kSwizzle128 << 62);
}

/// The same of rows of so many bytes, which is the span of their swizzle: 32, 64 or 128. Eight of them follow each
/// other without a gap.
template <int32_t kRowBytes>
DG_DEVICE uint64_t wgmma_descriptor_of_rows(uint32_t address) {
    static_assert(kRowBytes == 32 || kRowBytes == 64 || kRowBytes == 128);
    constexpr uint64_t kStride = 8 * kRowBytes >> 4, kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
    return ((address & 0x3ffff) >> 4) | (1ull << 16) | (kStride << 32) | (kSwizzle << 62);
}

/// The same of an MN-major operand, blocks of 64 rows by 64 of K: eight of K are 1024 bytes apart, blocks 8192. Advance
/// by 2048 bytes for the next K step.
DG_DEVICE uint64_t wgmma_descriptor_mn_major(uint32_t address) {
    constexpr uint64_t kNextBlock = 8192 >> 4, kNextEight = 1024 >> 4, kSwizzle128 = 1;
    return ((address & 0x3ffff) >> 4) | (kNextBlock << 16) | (kNextEight << 32) | (kSwizzle128 << 62);
}

/// The same without a swizzle, for an operand of 16 bytes of K a row, which is read twice: as the first and as the last
/// 16 of a step's 32 bytes.
DG_DEVICE uint64_t wgmma_descriptor_repeated(uint32_t address) {
    constexpr uint64_t kStride = 128 >> 4;
    return ((address & 0x3ffff) >> 4) | (kStride << 32);
}

/// D[64, N] = A B^T (+ D if `accumulate`), FP32 accumulators; E4M3 takes K = 32 a step and both operands K-major, BF16
/// and FP16 K = 16. Only the widths that tiles have, since the compiler reads each operand of each.
template <int kN>
struct Wgmma;

// clang-format off
#define DG_COMMA ,
#define DG_WGMMA_ASM(registers, a, b, p, instruction, tail, ...)                                                      \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #p ", 0;\n " instruction " {" DG_D_##registers "}, %" #a ", %" #b  \
                 ", p, 1, 1" tail ";\n}\n"                                                                            \
                 : DG_O_##registers("+f")                                                                             \
                 : "l"(rows), "l"(cols), "r"(accumulate) __VA_ARGS__)
#define DG_WGMMA_16_BIT(type, n, registers, a, b, p, s, t)                                                            \
        template <bool kMnMajorRows, bool kMnMajorCols>                                                               \
        DG_DEVICE static void type(float* d, uint64_t rows, uint64_t cols, int accumulate) {                          \
            DG_WGMMA_ASM(registers, a, b, p, "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type,       \
                         ", %" #s ", %" #t, DG_COMMA "n"(int(kMnMajorRows)), "n"(int(kMnMajorCols)));                 \
        }
#define DG_WGMMA(n, registers, a, b, p, s, t)                                                                         \
    template <>                                                                                                       \
    struct Wgmma<n> {                                                                                                 \
        DG_DEVICE static void e4m3(float* d, uint64_t rows, uint64_t cols, int accumulate) {                          \
            DG_WGMMA_ASM(registers, a, b, p, "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3", "");         \
        }                                                                                                             \
        DG_WGMMA_16_BIT(bf16, n, registers, a, b, p, s, t)                                                            \
        DG_WGMMA_16_BIT(f16, n, registers, a, b, p, s, t)                                                             \
    };

DG_WGMMA(8, 4, 4, 5, 6, 7, 8)
DG_WGMMA(16, 8, 8, 9, 10, 11, 12)
DG_WGMMA(24, 12, 12, 13, 14, 15, 16)
DG_WGMMA(32, 16, 16, 17, 18, 19, 20)
DG_WGMMA(40, 20, 20, 21, 22, 23, 24)
DG_WGMMA(48, 24, 24, 25, 26, 27, 28)
DG_WGMMA(56, 28, 28, 29, 30, 31, 32)
DG_WGMMA(64, 32, 32, 33, 34, 35, 36)
DG_WGMMA(80, 40, 40, 41, 42, 43, 44)
DG_WGMMA(96, 48, 48, 49, 50, 51, 52)
DG_WGMMA(112, 56, 56, 57, 58, 59, 60)
DG_WGMMA(128, 64, 64, 65, 66, 67, 68)
DG_WGMMA(144, 72, 72, 73, 74, 75, 76)
DG_WGMMA(160, 80, 80, 81, 82, 83, 84)
DG_WGMMA(176, 88, 88, 89, 90, 91, 92)
DG_WGMMA(192, 96, 96, 97, 98, 99, 100)
DG_WGMMA(208, 104, 104, 105, 106, 107, 108)
DG_WGMMA(224, 112, 112, 113, 114, 115, 116)
DG_WGMMA(240, 120, 120, 121, 122, 123, 124)
DG_WGMMA(256, 128, 128, 129, 130, 131, 132)

/// D[64, N] = A B^T of TF32 values, K = 8, A in registers: thread t holds, of rows 16 (t / 32) + (t % 32) / 4 and 8
/// more, first K = t % 4 of both, then K = t % 4 + 4. Only the widths of tiles whose products of scales it forms.
template <int kN>
struct WgmmaTf32;

#define DG_WGMMA_TF32(n, registers, a0, a1, a2, a3, b)                                                                \
    template <>                                                                                                       \
    struct WgmmaTf32<n> {                                                                                             \
        DG_DEVICE static void run(float (&d)[registers], const uint32_t (&a)[4], uint64_t cols) {                     \
            asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, 0, 0;\n wgmma.mma_async.sync.aligned.m64n" #n            \
                         "k8.f32.tf32.tf32 {" DG_D_##registers "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b     \
                         ", p, 1, 1;\n}\n"                                                                            \
                         : DG_O_##registers("+f")                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(cols));                                    \
        }                                                                                                             \
    };

DG_WGMMA_TF32(64, 32, 32, 33, 34, 35, 36)
DG_WGMMA_TF32(80, 40, 40, 41, 42, 43, 44)
DG_WGMMA_TF32(96, 48, 48, 49, 50, 51, 52)
DG_WGMMA_TF32(112, 56, 56, 57, 58, 59, 60)
DG_WGMMA_TF32(128, 64, 64, 65, 66, 67, 68)

// clang-format on
#undef DG_WGMMA
#undef DG_WGMMA_16_BIT
#undef DG_WGMMA_TF32
#undef DG_COMMA
#undef DG_WGMMA_ASM

}  // namespace deep_gemm::ptx
