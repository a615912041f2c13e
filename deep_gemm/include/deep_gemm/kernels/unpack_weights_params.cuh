// Config and argument of the kernel that makes rows of packed weights, and the launch numbers that host and device
// share.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

inline constexpr int32_t kUnpackWeightsThreads = 128;  // of a block of 64 rows and 128 of K, 16 bytes for each unit

/// What is unpacked, and what becomes of it: what tensor cores multiply.
struct UnpackWeightsConfig {
    Element element = Element::none, target = Element::none;
    int32_t scales_k = 0;  // of K that share a scale which is multiplied in (Scaling::in_conversion)
    int32_t zeros_k = 0;   // Operand::zeros_k
};

/// Blocks along K of a CTA: so much that a thread has under way.
constexpr int32_t unpacked_blocks(Element element) {
    return 4 * packed_block_bytes(Element::s4) / packed_block_bytes(element);
}

/// codes [row blocks][k_blocks][block] -> target [row blocks * kPackedRows][target_stride], what conversion in a
/// product makes of them. Of folded exponents: scales [K blocks][padded_rows] without fields, too.
struct UnpackWeightsParams {
    const uint8_t* codes;
    uint8_t* target;
    const uint32_t* words;  // [groups of K][padded_rows], which conversion reads beside codes: zero points or scales
    uint32_t* target_scales;
    int64_t target_stride;  // bytes, a multiple of those of kPackedK
    int64_t padded_rows;    // words between groups of K
    int32_t k_blocks;
    uint32_t k_parts;  // CTAs of a row of blocks
};

}  // namespace deep_gemm
