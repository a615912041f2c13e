// mma.sync: a warp multiplies 16 rows of A by 8 rows of B, of 32 bytes of K each, all in registers. D += A B^T.
//
// Lane l holds rows l / 4 (a[0], a[2]) and 8 more (a[1], a[3]) of A, and row l / 4 of B: word l % 4 of the first
// (a[0], a[1], b[0]) and of the last 16 bytes; load_matrix_x4 and _x2 bring them so. Of D: d[0] and d[1] are columns
// 2 (l % 4) and the next one of row l / 4, d[2] and d[3] the same of row l / 4 + 8.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

// clang-format off
#define DG_MMA_SYNC(name, shape, accumulator, types, c)                                                               \
    DG_DEVICE void name(accumulator (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {                        \
        asm volatile("mma.sync.aligned." shape ".row.col." types                                                      \
                     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                               \
                     : c(d[0]), c(d[1]), c(d[2]), c(d[3])                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                             \
    }

/// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32, and so on.
DG_MMA_SYNC(mma_f16, "m16n8k16", float, "f32.f16.f16.f32", "+f")
DG_MMA_SYNC(mma_bf16, "m16n8k16", float, "f32.bf16.bf16.f32", "+f")
DG_MMA_SYNC(mma_tf32, "m16n8k8", float, "f32.tf32.tf32.f32", "+f")
/// From sm_89 on; emulated by slow code on sm_90.
DG_MMA_SYNC(mma_e4m3, "m16n8k32", float, "f32.e4m3.e4m3.f32", "+f")
DG_MMA_SYNC(mma_e5m2, "m16n8k32", float, "f32.e5m2.e5m2.f32", "+f")
/// Integers: exact sums in 32 bits, which wrap around. `s8_u8`: A signed, B unsigned.
DG_MMA_SYNC(mma_s8_s8, "m16n8k32", int32_t, "s32.s8.s8.s32", "+r")
DG_MMA_SYNC(mma_s8_u8, "m16n8k32", int32_t, "s32.s8.u8.s32", "+r")
DG_MMA_SYNC(mma_u8_s8, "m16n8k32", int32_t, "s32.u8.s8.s32", "+r")
DG_MMA_SYNC(mma_u8_u8, "m16n8k32", int32_t, "s32.u8.u8.s32", "+r")
/// Two a byte, the low half first. Native on sm_80 to sm_89 only.
DG_MMA_SYNC(mma_s4_s4, "m16n8k64", int32_t, "s32.s4.s4.s32", "+r")
// clang-format on
#undef DG_MMA_SYNC

}  // namespace deep_gemm::ptx
