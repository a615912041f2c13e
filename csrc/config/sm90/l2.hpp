// Hopper: what the L2 keeps, lets go and is asked for in advance.
#pragma once

#include <deep_gemm/plan.cuh>

#include <algorithm>

#include "../problem.hpp"

namespace deep_gemm::sm90 {

/// Of A, that the L2 keeps while B and D pass through it; of B, while A and D do (docs/performance.md).
inline constexpr double kKeptBytes = 12 << 20, kKeptBytesOfB = 20 << 20;

/// What the L2 has room for.
inline constexpr double kL2Bytes = 50e6;

/// Of B in all, up to which it should leave the L2 first: it then makes room for itself, and what others left there
/// need not be written back. With more bytes that is worth little, and such calls are faster without, the sooner in
/// straight tiles of experts, of which several read the same (docs/performance.md).
inline double streamed_bytes(const GemmConfig& c) {
    return c.grouping == Grouping::dense ? 250e6 : c.swap_ab ? 400e6 : 100e6;
}

/// Whether the L2 fetches no more than the 128 bytes of a K block's row where it misses, instead of 256. A deep ring
/// asks for the next 128 in time; a shallow one had better find them there, as had operands of a D that is added to,
/// while the memory is busy with that. So had operands of so many bytes that reading them is all that counts
/// (docs/performance.md).
inline bool fetches_lines(const GemmConfig& c, int64_t operand_bytes) {
    return (c.grouping == Grouping::dense || c.grouping == Grouping::masked) && !adds_to_memory(c.store) &&
           c.stages >= kDeepRing && operand_bytes < int64_t{200} << 20;
}

/// Of so many columns of a D that is added to, the store role asks the L2 for one box; a line of 128 bytes comes with
/// its neighbour, if it must. Where operands' rows start within lines, the L2's requests bind, and half as many cost
/// less (docs/performance.md).
inline uint8_t fetched_columns(const Problem& p) {
    return std::min(p.row_alignment_a, p.row_alignment_b) < kBestAlignment ? 64 : 1;  // FP32
}

/// So many shares of a tile before they are added. Behind few K blocks, shares follow each other before the lines have
/// come; but lines that are asked for sooner displace operands, unless the L2 has room for all of D.
/// docs/performance.md.
inline uint8_t fetched_ahead(const Problem& p) {
    const int32_t k_blocks = ceil_div(expected_k(p) * element_bytes(p.operand), kSwizzleBytes);
    const double groups = p.grouping == Grouping::k_contiguous ? p.num_groups : 1,
                 bytes = groups * p.m * p.n * element_bytes(ElementType::fp32);
    return k_blocks > 8 ? 2 : bytes <= kL2Bytes ? 6 : k_blocks > 2 ? 3 : 4;
}

}  // namespace deep_gemm::sm90
