// Configs and arguments of the kernels that pack weights, and the launch numbers that host and device share.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

inline constexpr int32_t kPackThreads = 256;
inline constexpr int32_t kPackLineBytes = 128;  // of each of a block's rows, that a block of threads reads
inline constexpr int32_t kPackUnitBytes = packed_unit_bytes(kPackedRows);  // that a warpgroup reads at once

/// What is stored is the code less this: unsigned codes with zero points lie as signed ones.
constexpr int32_t unsigned_offset(Element element) { return 1 << (bits(element) - 1); }

struct PackCodesConfig {
    Element element = Element::s4;  // as it lies in blocks
    bool wide = false;              // beside activations of 16 bits
    bool is_signed = true;          // codes are -8..7, else 0..15 (of 4 bits)
    bool offset = false;            // unsigned_offset is subtracted
    bool pairs = false;             // two codes a byte, the first one in the lower half
    bool aligned = true;            // rows and matrices start at multiples of 16 bytes

    DG_HOST_DEVICE constexpr int32_t block_units() const { return packed_block_bytes(element) / kPackUnitBytes; }
    DG_HOST_DEVICE constexpr int32_t tile_blocks() const { return kPackLineBytes * (pairs ? 2 : 1) / kPackedK; }
};

/// Bits of what the kernel finds.
inline constexpr int32_t kFoundOutOfRange = 1, kFoundMinusEight = 2;

/// Codes [groups][rows][row_bytes], K contiguous -> blocks [groups][row_blocks][k_blocks][bytes of a block].
struct PackCodesParams {
    const uint8_t* source;
    uint8_t* target;
    int32_t* found;                    // bits are added to it, unless it is null
    float* nan_scales;                 // of 8-bit codes: packed scales, which become NaN where codes are; or null
    int64_t group_stride, row_stride;  // bytes
    int32_t rows, row_bytes;
    int32_t row_blocks, k_blocks, k_tiles;
};

inline constexpr int32_t kPackScalesTile = 32;  // rows, and groups of K

struct PackScalesConfig {
    Element element = Element::fp32;  // as they lie: fp32, ue8m0, or s32 (four exponents a word)
    bool rows_first = false;          // rows are closer to each other than neighbours along K
};

/// Scales [groups][rows][k_scales] -> FP32 [groups][k_groups][padded_rows], times `factor`; zeros behind both ends.
struct PackScalesParams {
    const void* source;
    float* target;
    int64_t group_stride, row_stride, k_stride;  // elements
    int32_t rows, padded_rows;
    int32_t k_scales, k_groups;
    int32_t repeat;      // groups of the target that share a scale
    int32_t row_repeat;  // rows that do
    float factor;
};

}  // namespace deep_gemm
