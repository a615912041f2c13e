// How the walk over tiles uses the L2.
#pragma once

#include <algorithm>
#include <cmath>

#include "problem.hpp"

namespace deep_gemm {

/// Blocks of M walked together: a wave of tiles reads fewest bytes when it covers a square of the output.
inline int32_t square_raster_group(const Problem& p, const GemmConfig& c, int32_t num_ctas) {
    const double square = std::sqrt(static_cast<double>(num_ctas) * c.tile.rows * c.tile.cols) / c.super_tile_m();
    const double most = p.grouping == Grouping::m_contiguous ? p.m : expected_group_rows(p);
    return static_cast<int32_t>(std::clamp(square + 0.5, 1.0, std::max(1.0, std::ceil(most / c.super_tile_m()))));
}

/// Of B in all, up to which it should leave the L2 first: it then makes room for itself, and what others left there
/// need not be written back. With more bytes that is worth little, and such calls are faster without, the sooner in
/// straight tiles of experts, of which several read the same. Measured on an H200, in times of its L2
/// (docs/notes/tried.md).
inline double streamed_bytes(const GemmConfig& c, double l2_bytes) {
    return l2_bytes * (has_fixed_extents(c.grouping) ? 5 : c.swap_ab ? 8 : 2);
}

/// Whether B should pass through the L2 and leave room for the rest. It pays where B is most of what is moved and all
/// blocks of M that share a part of it are walked together, so that memory is read once whatever the L2 keeps; and not
/// where it is many times what the L2 holds (docs/notes/tried.md).
inline bool streams_b(const Problem& p, const GemmConfig& c, int32_t raster_group_blocks, double l2_bytes) {
    if (divides_k(p.grouping)) return false;
    if (int64_t{raster_group_blocks} * c.super_tile_m() < expected_group_rows(p)) return false;
    const double k = p.k, n = p.n, weights = expected_weights(p) * n * bytes_of(p.b.element, k);
    const double others = expected_rows(p) * (bytes_of(p.a.element, k) + bytes_of(p.output, n));
    const bool straight_groups = is_m_grouped(p.grouping) && !c.swap_ab;
    return weights <= streamed_bytes(c, l2_bytes) && weights >= (straight_groups ? 4 : 2.5) * others;
}

}  // namespace deep_gemm
