// Hopper: what the L2 keeps, lets go and is asked for in advance.
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>

#include <algorithm>
#include <cmath>

#include "../walk.hpp"

namespace deep_gemm::sm90 {

/// Of A, that the L2 keeps while B and D pass through it; of B, while A and D do (docs/notes/tried.md).
inline constexpr double kKeptBytes = 12 << 20, kKeptBytesOfB = 20 << 20;

/// What the L2 has room for.
inline constexpr double kL2Bytes = 50e6;

/// Stages of a ring that asks far ahead.
inline constexpr int32_t kDeepRing = 7;

/// Below so many bytes of an operand the L2 fetches no more than the 128 bytes of a K block's row where it misses,
/// instead of 256. A deep ring asks for the next 128 in time; a shallow one had better find them there, as had operands
/// of a D that is added to, while the memory is busy with that. So had operands of so many bytes that reading them is
/// all that counts (docs/notes/tried.md).
inline int64_t lines_below_bytes(const GemmConfig& c) {
    const bool asks_in_time = (has_fixed_extents(c.grouping) || c.grouping == Grouping::masked) &&
                              !adds_to_memory(c.store) && c.stages >= kDeepRing;
    return asks_in_time ? int64_t{200} << 20 : 0;
}

/// The store role asks the L2 for a D that is added to so many shares of a tile before they are added. Behind few K
/// blocks, shares follow each other before the lines have come; but lines that are asked for sooner displace operands,
/// unless the L2 has room for all of D. docs/notes/tried.md.
inline uint8_t fetched_ahead(const Problem& p) {
    const int32_t k_blocks = ceil_div(bytes_of(p.a.element, expected_k(p)), kSwizzleBytes);
    const double groups = has_equal_groups(p.grouping) ? p.num_groups : 1,
                 bytes = bytes_of(Element::fp32, groups * p.m * p.n);
    return k_blocks > 8 ? 2 : bytes <= kL2Bytes ? 6 : k_blocks > 2 ? 3 : 4;
}

/// Blocks of M walked together. A wave of tiles reads fewest bytes when it covers a square of the output. Higher, where
/// B is the larger operand and the L2 keeps their rows of A beside what passes through it: B is then read fewer times.
/// (If not all of A, then only where additions to D leave the memory little time.) Lower, where the L2 keeps a smaller
/// B: A is then read once, whatever the height. No higher than a group may be: a strip of full height is found without
/// a division. docs/notes/tried.md.
inline int32_t choose_raster_group(const Problem& p, const GemmConfig& c, int32_t num_ctas) {
    const double block_m = c.super_tile_m();
    const double rows = p.grouping == Grouping::m_contiguous && !has_expert_runs(c) ? p.m : expected_group_rows(p);
    const double most = p.grouping == Grouping::masked ? std::min<double>(p.m, rows * (1 + kGroupScatter)) : rows;
    const double square = std::sqrt(static_cast<double>(num_ctas) * c.tile.rows * c.tile.cols) / block_m;
    const double row_bytes = bytes_of(p.a.element, static_cast<double>(expected_k(p)));
    const double kept = kKeptBytes / (block_m * row_bytes);
    double blocks = square;
    if (p.n >= rows && (kept * block_m >= rows || adds_to_memory(c.store)))
        blocks = std::max(square, kept);
    else if (p.n < rows && p.n * row_bytes <= kKeptBytesOfB)
        blocks = square * std::max(0.5, p.n / rows);
    return static_cast<int32_t>(std::clamp(blocks + 0.5, 1.0, std::ceil(most / block_m)));
}

}  // namespace deep_gemm::sm90
