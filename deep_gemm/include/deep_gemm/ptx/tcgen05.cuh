// tcgen05 (SM100): tensor memory, 128 lanes by 512 columns of 32 bits a CTA, and products into it. One thread issues
// them; with kCtas = 2 it does so for a pair of CTAs, of which the even one leads.
//
// An address of tensor memory is lane << 16 | column. Warp w reads and writes lanes 32 (w % 4) and up.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

// clang-format off
// The text of an instruction for one CTA or for two.
#define DG_CTA_GROUP(before, after, ...)                                      \
    if constexpr (kCtas == 1)                                                 \
        asm volatile(before "cta_group::1" after __VA_ARGS__ : "memory");     \
    else                                                                      \
        asm volatile(before "cta_group::2" after __VA_ARGS__ : "memory")
// clang-format on

/// tcgen05.alloc: so many columns, a power of two from 32 on; their address is written to shared memory. By one warp
/// (of each CTA of the pair); waits until they are free.
template <int kCtas>
DG_DEVICE void allocate_tensor_memory(uint32_t destination, uint32_t columns) {
    DG_CTA_GROUP("tcgen05.alloc.", ".sync.aligned.shared::cta.b32 [%0], %1;", ::"r"(destination), "r"(columns));
}

/// tcgen05.dealloc: once nobody uses them any more, by the CTA (or pair) that has allocated them.
template <int kCtas>
DG_DEVICE void free_tensor_memory(uint32_t address, uint32_t columns) {
    DG_CTA_GROUP("tcgen05.dealloc.", ".sync.aligned.b32 %0, %1;", ::"r"(address), "r"(columns));
}

/// tcgen05.relinquish_alloc_permit: this CTA allocates no more, others on its SM may.
template <int kCtas>
DG_DEVICE void finish_allocating() {
    DG_CTA_GROUP("tcgen05.relinquish_alloc_permit.", ".sync.aligned;", ::);
}

/// Shared-memory descriptor of a K-major operand with 128-byte swizzle: eight rows of 128 bytes are 1024 bytes apart.
/// Advance by 32 bytes for the next K step within the span.
DG_DEVICE uint64_t tensor_descriptor(uint32_t address) {
    constexpr uint64_t kStride = 1024 >> 4, kVersion = 1, kSwizzle128 = 2;
    return ((address & 0x3ffff) >> 4) | (kStride << 32) | (kVersion << 46) | (kSwizzle128 << 61);
}

/// The same of rows of so many bytes, which is the span of their swizzle: 32, 64 or 128. Eight of them follow each
/// other without a gap.
template <int32_t kRowBytes>
DG_DEVICE uint64_t tensor_descriptor_of_rows(uint32_t address) {
    static_assert(kRowBytes == 32 || kRowBytes == 64 || kRowBytes == 128);
    constexpr uint64_t kStride = 8 * kRowBytes >> 4, kVersion = 1,
                       kSwizzle = kRowBytes == 128  ? 2
                                  : kRowBytes == 64 ? 4
                                                    : 6;
    return ((address & 0x3ffff) >> 4) | (kStride << 32) | (kVersion << 46) | (kSwizzle << 61);
}

/// The same of an MN-major operand: blocks of 128 bytes of M or N, each with a line for each K, are `block_bytes`
/// apart. Advance by the lines of a K step.
DG_DEVICE uint64_t tensor_descriptor_mn_major(uint32_t address, uint32_t block_bytes) {
    return tensor_descriptor(address) | (static_cast<uint64_t>(block_bytes >> 4) << 16);
}

/// The same of 32 rows of 16 bytes of scales, no swizzle: eight rows are 128 bytes apart.
DG_DEVICE uint64_t tensor_descriptor_of_scales(uint32_t address) {
    constexpr uint64_t kStride = 128 >> 4, kVersion = 1;
    return ((address & 0x3ffff) >> 4) | (kStride << 32) | (kVersion << 46);
}

/// tcgen05.cp: 32 rows of four words from shared memory to four columns, to each quarter of the lanes. Products that
/// are issued later find them; of earlier ones none may still read there.
template <int kCtas>
DG_DEVICE void copy_to_tensor_memory(uint32_t address, uint64_t descriptor) {
    DG_CTA_GROUP("tcgen05.cp.", ".32x128b.warpx4 [%0], %1;", ::"r"(address), "l"(descriptor));
}

// clang-format off
/// tcgen05.mma: D = A B^T (+ D if `accumulate`), both operands in shared memory, 32 bytes of K.
#define DG_TENSOR_MMA(name, kind)                                                                                     \
    template <int kCtas>                                                                                              \
    DG_DEVICE void name(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, int accumulate) {                   \
        DG_CTA_GROUP("{\n .reg .pred p;\n setp.ne.b32 p, %4, 0;\n tcgen05.mma.",                                      \
                     ".kind::" kind " [%0], %1, %2, %3, p;\n}\n",                                                     \
                     ::"r"(d), "l"(a), "l"(b), "r"(instruction), "r"(accumulate));                                    \
    }
/// The same with scales in tensor memory: row r of 128 in lane r % 32 (and 32, 64, 96 more), column r / 32 and up.
#define DG_TENSOR_MMA_SCALED(name, kind)                                                                              \
    template <int kCtas>                                                                                              \
    DG_DEVICE void name(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t scales_a,                  \
                        uint32_t scales_b, int accumulate) {                                                          \
        DG_CTA_GROUP("{\n .reg .pred p;\n setp.ne.b32 p, %6, 0;\n tcgen05.mma.",                                      \
                     ".kind::" kind " [%0], %1, %2, %3, [%4], [%5], p;\n}\n",                                         \
                     ::"r"(d), "l"(a), "l"(b), "r"(instruction), "r"(scales_a), "r"(scales_b), "r"(accumulate));      \
    }

/// The same with A in tensor memory, at the same place in each CTA: a row a lane, 32 bytes of K in eight columns.
#define DG_TENSOR_MMA_ROWS(name, kind)                                                                                \
    template <int kCtas>                                                                                              \
    DG_DEVICE void name(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction, int accumulate) {                   \
        DG_CTA_GROUP("{\n .reg .pred p;\n setp.ne.b32 p, %4, 0;\n tcgen05.mma.",                                      \
                     ".kind::" kind " [%0], [%1], %2, %3, p;\n}\n",                                                   \
                     ::"r"(d), "r"(a), "l"(b), "r"(instruction), "r"(accumulate));                                    \
    }

DG_TENSOR_MMA(tensor_mma_f16, "f16")
DG_TENSOR_MMA(tensor_mma_tf32, "tf32")
DG_TENSOR_MMA(tensor_mma_f8f6f4, "f8f6f4")
DG_TENSOR_MMA(tensor_mma_i8, "i8")  // sm_100a only
DG_TENSOR_MMA_SCALED(tensor_mma_mxf8f6f4, "mxf8f6f4.block_scale.block32")
DG_TENSOR_MMA_SCALED(tensor_mma_mxf4, "mxf4.block_scale.block32")
DG_TENSOR_MMA_SCALED(tensor_mma_nvf4, "mxf4nvf4.block_scale.block16")
// clang-format on
#undef DG_TENSOR_MMA
#undef DG_TENSOR_MMA_SCALED

DG_TENSOR_MMA_ROWS(tensor_mma_rows_f16, "f16")
DG_TENSOR_MMA_ROWS(tensor_mma_rows_f8f6f4, "f8f6f4")
DG_TENSOR_MMA_ROWS(tensor_mma_rows_i8, "i8")  // sm_100a only
#undef DG_TENSOR_MMA_ROWS

/// tcgen05.commit: arrive once at a barrier of this CTA when all that this thread has issued so far is over.
template <int kCtas>
DG_DEVICE void commit_tensor_work(uint32_t barrier) {
    DG_CTA_GROUP("tcgen05.commit.", ".mbarrier::arrive::one.shared::cluster.b64 [%0];", ::"r"(barrier));
}

/// The same at the barriers at this offset of every CTA of `cta_mask`.
template <int kCtas>
DG_DEVICE void commit_tensor_work_multicast(uint32_t barrier, uint16_t cta_mask) {
    DG_CTA_GROUP("tcgen05.commit.", ".mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;",
                 ::"r"(barrier), "h"(cta_mask));
}

#undef DG_CTA_GROUP

/// tcgen05.ld: four columns of this warp's lanes, a lane's to one thread. The registers are good after
/// wait_tensor_loads.
DG_DEVICE void load_tensor_memory(uint32_t address, uint32_t (&words)[4]) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}

/// Eight columns.
DG_DEVICE void load_tensor_memory(uint32_t address, uint32_t (&words)[8]) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]), "=r"(words[4]), "=r"(words[5]),
                   "=r"(words[6]), "=r"(words[7])
                 : "r"(address)
                 : "memory");
}

/// Sixteen columns.
DG_DEVICE void load_tensor_memory(uint32_t address, uint32_t (&words)[16]) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15}, [%16];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]), "=r"(words[4]), "=r"(words[5]),
          "=r"(words[6]), "=r"(words[7]), "=r"(words[8]), "=r"(words[9]), "=r"(words[10]), "=r"(words[11]),
          "=r"(words[12]), "=r"(words[13]), "=r"(words[14]), "=r"(words[15])
        : "r"(address)
        : "memory");
}

/// Thirty-two columns.
DG_DEVICE void load_tensor_memory(uint32_t address, uint32_t (&words)[32]) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]), "=r"(words[4]), "=r"(words[5]),
          "=r"(words[6]), "=r"(words[7]), "=r"(words[8]), "=r"(words[9]), "=r"(words[10]), "=r"(words[11]),
          "=r"(words[12]), "=r"(words[13]), "=r"(words[14]), "=r"(words[15]), "=r"(words[16]), "=r"(words[17]),
          "=r"(words[18]), "=r"(words[19]), "=r"(words[20]), "=r"(words[21]), "=r"(words[22]), "=r"(words[23]),
          "=r"(words[24]), "=r"(words[25]), "=r"(words[26]), "=r"(words[27]), "=r"(words[28]), "=r"(words[29]),
          "=r"(words[30]), "=r"(words[31])
        : "r"(address)
        : "memory");
}

/// tcgen05.st: four columns of this warp's lanes, from each thread to its lane.
DG_DEVICE void store_tensor_memory(uint32_t address, const uint32_t (&words)[4]) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

/// Of 16 of these lanes: a thread's register r to lane lane / 4 + 8 (r % 2), column lane % 4 + 4 (r / 2).
DG_DEVICE void store_tensor_memory_16(uint32_t address, const uint32_t (&words)[16]) {
    asm volatile(
        "tcgen05.st.sync.aligned.16x128b.x8.b32 [%0], {"
        "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15, %16};" ::"r"(address),
        "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(words[4]), "r"(words[5]), "r"(words[6]),
        "r"(words[7]), "r"(words[8]), "r"(words[9]), "r"(words[10]), "r"(words[11]), "r"(words[12]), "r"(words[13]),
        "r"(words[14]), "r"(words[15])
        : "memory");
}
DG_DEVICE void store_tensor_memory_16(uint32_t address, const uint32_t (&words)[32]) {
    asm volatile(
        "tcgen05.st.sync.aligned.16x128b.x16.b32 [%0], {"
        "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, "
        "%29, %30, %31, %32};" ::"r"(address),
        "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(words[4]), "r"(words[5]), "r"(words[6]),
        "r"(words[7]), "r"(words[8]), "r"(words[9]), "r"(words[10]), "r"(words[11]), "r"(words[12]), "r"(words[13]),
        "r"(words[14]), "r"(words[15]), "r"(words[16]), "r"(words[17]), "r"(words[18]), "r"(words[19]), "r"(words[20]),
        "r"(words[21]), "r"(words[22]), "r"(words[23]), "r"(words[24]), "r"(words[25]), "r"(words[26]), "r"(words[27]),
        "r"(words[28]), "r"(words[29]), "r"(words[30]), "r"(words[31])
        : "memory");
}

/// tcgen05.wait::ld
DG_DEVICE void wait_tensor_loads() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

/// tcgen05.wait::st
DG_DEVICE void wait_tensor_stores() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

/// tcgen05.fence::before_thread_sync: loads and stores of this thread that were waited for are ordered before what
/// others do behind the barrier that comes next.
DG_DEVICE void tensor_fence_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }

/// tcgen05.fence::after_thread_sync: what tcgen05 does here comes behind the barrier that was waited for last.
DG_DEVICE void tensor_fence_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

}  // namespace deep_gemm::ptx
