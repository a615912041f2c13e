// Hopper: the tiles that exist, and how a tile's warpgroups divide it.
#pragma once

#include <deep_gemm/config.cuh>

#include <algorithm>
#include <vector>

#include "../candidate.hpp"
#include "../quantised.hpp"
#include "clusters.hpp"
#include "schedule.hpp"

namespace deep_gemm::sm90 {

/// Whether wgmma has this width. That of integers has no other multiples of 8 beyond 32 than those of 16.
inline bool has_width(Element element, int32_t cols) {
    return sum_of(element) != Element::s32 || cols <= 32 || cols % 16 == 0;
}

/// Where gated activations are quantised: all rows of weights that share a scale, beside few tokens too.
inline constexpr int32_t kGatedRows = 256, kGatedCols[] = {8, 16, 32, 64};

/// Tiles worth considering, whatever the problem. Accumulators bound them: a thread holds cols / 2 floats for each 64
/// rows, and where sums of K blocks are scaled another cols / 2 for the block under way.
inline std::vector<TileShape> tile_shapes(const Problem& p, bool swap_ab) {
    const Element element = p.a.element;
    const int32_t k = span_k(element);
    std::vector<TileShape> shapes;
    if (swap_ab) {  // cols are tokens
        for (const int32_t rows : {64, 128})
            for (int32_t cols = 8; cols <= 128; cols += cols < 64 ? 8 : 16)
                if (has_width(element, cols)) shapes.push_back({rows, cols, k});
        if (p.quantises_gates())
            for (const int32_t cols : kGatedCols) shapes.push_back({kGatedRows, cols, k});
    } else {
        for (int32_t cols = 32; cols <= 192; cols += 16) shapes.push_back({64, cols, k});
        for (int32_t cols = 16; cols <= 192; cols += 16) shapes.push_back({128, cols, k});
        for (int32_t cols = 64; cols <= 128; cols += 16) shapes.push_back({256, cols, k});
        for (const int32_t cols : {96, 112, 128}) shapes.push_back({192, cols, k});
        if (!scales_blocks(p))
            for (const int32_t cols : {208, 224, 240, 256}) shapes.push_back({128, cols, k});
        if (bits(element) == 16)
            for (const int32_t cols : {176, 192}) shapes.push_back({192, cols, k});
    }
    return shapes;
}

/// For groups: fewer of them, so that a weight shape has few kernels, and heights of 64 for groups that start at
/// multiples of 64.
inline std::vector<TileShape> grouped_tile_shapes(const Problem& p, bool swap_ab) {
    const int32_t k = span_k(p.a.element);
    std::vector<TileShape> shapes;
    if (swap_ab) {
        shapes = {{64, 8, k},   {64, 16, k},  {64, 32, k},  {64, 64, k},  {128, 8, k},   {128, 16, k}, {128, 24, k},
                  {128, 32, k}, {128, 48, k}, {128, 64, k}, {128, 96, k}, {128, 128, k}, {256, 64, k}, {256, 128, k}};
        if (p.quantises_gates())
            for (const int32_t cols : kGatedCols)
                if (cols < 64) shapes.push_back({kGatedRows, cols, k});
        return shapes;
    }
    shapes = {{64, 64, k},  {64, 96, k},   {64, 128, k},  {64, 192, k},  {128, 32, k},  {128, 64, k},
              {128, 96, k}, {128, 112, k}, {128, 128, k}, {128, 192, k}, {192, 128, k}, {256, 128, k}};
    if (!scales_blocks(p))
        for (const int32_t cols : {160, 256}) shapes.push_back({128, cols, k});
    return shapes;
}

/// Warpgroups that divide a tile's rows among themselves.
inline int32_t row_warpgroups(const TileShape& tile) { return tile.rows == 192 ? 3 : tile.rows == 64 ? 1 : 2; }

/// Whether a tile's row warpgroups are worth doubling, the additional ones taking every second K block. (Pairs along N
/// have half of the columns that share a scale each, where D is quantised.)
inline bool may_split_k(const Problem& p, bool swap_ab, const TileShape& tile, const ClusterShape& cluster) {
    const int32_t along_m = swap_ab ? cluster.cols : cluster.rows, along_n = swap_ab ? cluster.rows : cluster.cols;
    return tile.rows == 64 && along_m == 1 && (along_n == 1 || p.output_scaling.any());
}

/// Whether pairs that split K of all tiles treat them as last ones, which are shared: the parts of the largest tiles
/// take two of their stages, unless they go where stages were. docs/notes/tried.md.
inline bool shares_only(const TileShape& tile) { return tile.rows < 256 && tile.rows * tile.cols >= 128 * 192; }

/// Columns from which on stages hold halves of packed weights' blocks, and of those of 8 bits with a scale for each
/// row.
inline constexpr int32_t kMinColsOfHalves = 160, kMinColsOfByteHalves = 128;

/// K that one stage holds: a span. Beside packed weights it is that of their blocks, which of 16 bits is two spans; in
/// wide tiles half of that, so that a ring has more stages than warpgroups hold (docs/notes/packed-speed.md).
inline int32_t stage_k(const Problem& p, const Tiling& tiling) {
    if (!p.b.packed()) return span_k(p.a.element);
    const bool whole_rows = !scales_blocks(p);
    const int32_t least = whole_rows && bits(p.b.element) == 8 ? kMinColsOfByteHalves : kMinColsOfHalves;
    const bool halves = bits(p.a.element) == 16 && p.grouping == Grouping::dense && tiling.tile_rows == 128 &&
                        tiling.tile_cols >= least && (whole_rows || may_rescale(p));
    return halves ? kPackedK / 2 : kPackedK;
}

/// For packed weights, which lie on the rows' side: tokens as wide as sums leave registers.
inline std::vector<TileShape> packed_tile_shapes(const Problem& p) {
    const int32_t k = kPackedK;
    std::vector<TileShape> shapes;
    for (const int32_t rows : {64, 128})
        for (const int32_t cols : {8, 16, 24, 32, 48, 64, 96, 128}) shapes.push_back({rows, cols, k});
    for (const int32_t cols : {160, 192}) shapes.push_back({128, cols, k});
    if (!scales_blocks(p) || may_rescale(p) || may_promote_once(p))
        for (const int32_t cols : {224, 256}) shapes.push_back({128, cols, k});
    return shapes;
}

/// What to consider for a problem.
inline std::vector<Tiling> tilings(const Problem& p) {
    std::vector<Tiling> found;
    found.reserve(1024);
    const auto add = [&](bool swap_ab, const std::vector<TileShape>& shapes) {
        for (const TileShape& tile : shapes)
            for (const ClusterShape& cluster : cluster_shapes())
                for (const int32_t k_warpgroups : {1, 2})
                    if (k_warpgroups == 1 || (has_fixed_extents(p.grouping) && may_split_k(p, swap_ab, tile, cluster)))
                        found.push_back({swap_ab, tile.rows, tile.cols, cluster, k_warpgroups});
    };
    if (p.b.packed()) {
        add(true, packed_tile_shapes(p));
    } else {
        for (const bool swap_ab : {false, true})
            add(swap_ab, is_m_grouped(p.grouping) ? grouped_tile_shapes(p, swap_ab) : tile_shapes(p, swap_ab));
    }
    return found;
}

inline bool has_tiling(const Problem& p, const Tiling& tiling) {
    const auto matches = [&](const TileShape& tile) {
        return tile.rows == tiling.tile_rows && tile.cols == tiling.tile_cols;
    };
    if (tiling.preconvert == Preconvert::a) return false;
    if (p.b.packed()) return tiling.swap_ab && std::ranges::any_of(packed_tile_shapes(p), matches);
    if (tiling.swap_ab && tiling.tile_rows == kGatedRows && std::ranges::count(kGatedCols, tiling.tile_cols) > 0)
        return true;
    return std::ranges::any_of(tile_shapes(p, tiling.swap_ab), matches) ||
           std::ranges::any_of(grouped_tile_shapes(p, tiling.swap_ab), matches);
}

}  // namespace deep_gemm::sm90
