// mma.sync with block scales: as the plain one (ptx/mma_sync.cuh), each product times the scales of its K. sm_120a and
// sm_121a have it.
//
// A lane's word has four scales of a row of A, or of B, for K that follows itself: row i of A in lane 4 i + 2 thread,
// row i + 8 in the next one, row i of B in lane 4 i + thread. The first byte that is multiplied is `byte`.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// Which scales of an operand's words.
struct ScaleSelector {
    uint16_t byte, thread;
};

// clang-format off
#define DG_MMA_BLOCK_SCALED(name, shape_and_types)                                                                    \
    DG_DEVICE void name(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], uint32_t scales_a,             \
                        ScaleSelector of_a, uint32_t scales_b, ScaleSelector of_b) {                                  \
        asm volatile("mma.sync.aligned." shape_and_types                                                              \
                     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3},"                               \
                     " {%10}, {%11, %12}, {%13}, {%14, %15};"                                                         \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scales_a),               \
                       "h"(of_a.byte), "h"(of_a.thread), "r"(scales_b), "h"(of_b.byte), "h"(of_b.thread));            \
    }

/// Exponents for 32 of K. FP4 lies in the middle four bits of a byte.
DG_MMA_BLOCK_SCALED(mma_mx_e4m3_e4m3, "kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0")
DG_MMA_BLOCK_SCALED(mma_mx_e4m3_e2m1, "kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e2m1.f32.ue8m0")
DG_MMA_BLOCK_SCALED(mma_mx_e2m1_e4m3, "kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m1.e4m3.f32.ue8m0")
/// Two FP4 a byte, the low half first: exponents for 32 of K, two a product; and UE4M3 for 16, four a product.
DG_MMA_BLOCK_SCALED(mma_mxf4, "kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0")
DG_MMA_BLOCK_SCALED(mma_nvf4, "kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3")
// clang-format on
#undef DG_MMA_BLOCK_SCALED

}  // namespace deep_gemm::ptx
