// Config and argument of the kernel that makes E4M3 of packed weights, and the launch numbers that host and device
// share.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

inline constexpr int32_t kUnpackWeightsThreads = 128;  // of a block of 64 rows and 128 of K, 16 bytes for each half
inline constexpr int32_t kUnpackWeightsBlocks = 4;     // along K, of a CTA

struct UnpackWeightsConfig {
    Element element = Element::none;  // of four bits, packed for FP8 activations
};

/// codes [row blocks][k_blocks][block] -> target [row blocks * kPackedRows][target_stride], E4M3 times what packing has
/// put into scales. Of folded exponents: scales [k_blocks][scale_stride] without fields, too.
struct UnpackWeightsParams {
    const uint8_t* codes;
    uint8_t* target;
    const uint32_t* scales;  // of folded exponents; like zeros, words [groups of K][padded rows]
    uint32_t* target_scales;
    const uint32_t* zeros;
    int64_t target_stride;  // bytes, a multiple of kPackedK
    int64_t padded_rows;    // words between groups of K
    int32_t zeros_k;        // that shares a word
    int32_t k_blocks;
    uint32_t k_parts;  // CTAs of a row of blocks
};

}  // namespace deep_gemm
