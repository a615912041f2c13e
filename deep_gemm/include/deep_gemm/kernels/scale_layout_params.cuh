// Configs and arguments of the scale-layout kernels, and the launch numbers that host and device share.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

/// What becomes of a 32-bit scale word on the way.
enum class ScaleEncoding : int32_t {
    words,            // copied bit for bit (FP32 scales, or exponents packed already)
    exponents_exact,  // FP32 powers of two -> UE8M0, four along K in one word; anything else becomes NaN (0xFF)
    exponent_bytes,   // UE8M0, one a byte -> FP32, exactly
    packed_bytes,     // UE8M0, one a byte -> four along K in one word
    exponent_words,   // four UE8M0 along K in one word -> FP32, exactly
};

DG_HOST_DEVICE constexpr bool reads_bytes(ScaleEncoding encoding) {
    return encoding == ScaleEncoding::exponent_bytes || encoding == ScaleEncoding::packed_bytes;
}
DG_HOST_DEVICE constexpr bool packs(ScaleEncoding encoding) {
    return encoding == ScaleEncoding::exponents_exact || encoding == ScaleEncoding::packed_bytes;
}

inline constexpr int32_t kScaleEncodings = 5;

inline constexpr int32_t kScaleLayoutThreads = 256;
inline constexpr int32_t kScaleTileRows = 32;  // 32 words side by side: whole 128-byte lines are written

struct ScaleLayoutConfig {
    ScaleEncoding encoding = ScaleEncoding::words;
    bool rows_first = false;  // neighbouring threads read neighbouring rows; otherwise neighbours along K
    int32_t tile_k = 64;      // scales along K that a block reads; a multiple of 4
    bool in_blocks = false;   // of kWordBlockRows

    constexpr bool operator==(const ScaleLayoutConfig&) const = default;
    DG_HOST_DEVICE constexpr bool packs() const { return deep_gemm::packs(encoding); }
    DG_HOST_DEVICE constexpr int32_t tile_words() const { return packs() ? tile_k / kScalesPerWord : tile_k; }
};

/// source [groups, rows / row_granularity, k_scales] in any strides -> target [groups][k_words][padded_rows], or in
/// blocks [groups][padded_rows / 128][k_words][128].
struct ScaleLayoutParams {
    const uint32_t* source;  // to bytes, where such are read
    uint32_t* target;
    int64_t group_stride, row_stride, k_stride;  // of the source, in its elements
    int32_t rows, padded_rows;                   // rows from `rows` to `padded_rows` are written as zero
    int32_t k_scales, k_words;                   // k_words = k_scales, or a quarter of it (rounded up) when packing
    int32_t num_groups;
    int32_t row_granularity;  // rows that share one source scale
};

/// source [sum of ceil(k_g / gran_k), rows] in any strides -> target [k_words][padded_rows], where a group has
/// ceil(k_g / (4 gran_k)) words: no word mixes groups. Words past those of all groups are written as zero. Of
/// exponent_words the other way round: source words -> target scales.
struct KGroupedScaleLayoutParams {
    const uint32_t* source;  // to bytes, where such are read
    uint32_t* target;
    int64_t row_stride, k_stride;
    const int32_t* grouped_layout;  // k_g of each group, on the device; in the psum layout, where each group's K ends
    int32_t psum_alignment;         // in the psum layout, each group's K starts at a multiple of it; otherwise 0
    int32_t rows, padded_rows;
    int32_t num_groups;
    int32_t k_scales;  // rows of the scales' side: no more are read or written, whatever grouped_layout says
    int32_t k_words;   // rows of the words' side, likewise
};

}  // namespace deep_gemm
