// SM80: the tiles that exist, and how warps divide them.
#pragma once

#include <deep_gemm/arch/sm80.cuh>

#include <algorithm>
#include <iterator>
#include <vector>

#include "../candidate.hpp"
#include "../quantised.hpp"
#include "../unpacked.hpp"

namespace deep_gemm::sm80 {

/// A tile, and warps along its rows, its columns and K.
struct WarpGrid {
    int32_t rows, cols, row_warps, col_warps, k_warps;
};

/// The narrow ones are for few tokens: rows are weights, and warps that share a tile divide K among themselves, so that
/// many bytes are under way.
inline constexpr WarpGrid kGrids[] = {
    {128, 256, 2, 4, 1}, {256, 128, 4, 2, 1}, {128, 128, 2, 2, 1}, {128, 64, 2, 2, 1}, {64, 128, 2, 2, 1},
    {64, 64, 2, 2, 1},   {128, 32, 4, 1, 1},  {64, 32, 4, 1, 1},   {64, 16, 4, 1, 1},  {64, 8, 4, 1, 1},
    {64, 64, 2, 1, 2},   {64, 32, 1, 1, 4},   {64, 16, 1, 1, 4},   {64, 8, 1, 1, 4},   {32, 32, 1, 1, 4},
    {32, 16, 1, 1, 4},   {32, 8, 1, 1, 4},    {16, 32, 1, 1, 4},   {16, 16, 1, 1, 4},  {16, 8, 1, 1, 4},
};

/// Behind a gate 128 columns of D that share a scale are of 256 rows of weights, which one CTA has.
inline constexpr WarpGrid kGateGrids[] = {
    {64, 256, 1, 8, 1}, {256, 64, 8, 1, 1}, {256, 32, 8, 1, 1}, {256, 16, 8, 1, 1}, {256, 8, 8, 1, 1}};

/// Whether the chip multiplies four bits by four bits, where nothing is scaled or subtracted on the way. (Later ones
/// emulate it.)
constexpr bool multiplies_s4(const Problem& p) {
    const bool scaled_at_last = p.a.scaling.per_channel() && p.b.scaling.per_channel();
    return p.int4_a != 0 && p.b.element == Element::s4 && p.target < 90 && (scaled_at_last || p.output == Element::s32);
}

/// Whether the chip multiplies E4M3. Those with wgmma or tcgen05 emulate it, of which 110 is served here.
constexpr bool multiplies_e4m3(int32_t target) { return target == 89 || target >= 120; }

/// Whether weights may be unpacked to what the chip multiplies.
constexpr bool may_multiply_unpacked(const Problem& p) {
    return may_unpack_b(p) && !multiplies_s4(p) && (p.a.element != Element::e4m3 || multiplies_e4m3(p.target));
}

/// Whether an operand may be converted by a kernel before the product, not by each warp that reads it, for many tokens:
/// packed weights (kernels/unpack_weights.cuh), or A of E4M3 (kernels/widen.cuh), of which K groups have no such
/// kernel.
constexpr bool may_convert(const Problem& p, Preconvert preconvert, bool swap_ab, const WarpGrid& grid) {
    if (preconvert == Preconvert::none) return true;
    if (swap_ab || grid.k_warps > 1 || grid.rows < 64 || grid.cols < 64) return false;
    if (preconvert == Preconvert::b) return may_multiply_unpacked(p);
    const bool widens = p.a.element == Element::e4m3 && p.b.element == Element::e4m3 && !multiplies_e4m3(p.target);
    return widens && !divides_k(p.grouping);
}

/// The problem that is left.
inline Problem converted(const Problem& p, Preconvert preconvert) {
    if (preconvert == Preconvert::b) return unpacked(p);
    Problem left = p;
    if (preconvert == Preconvert::a) left.a.element = Element::fp16;
    return left;
}

/// Sums of a warp, in elements of D: more leave no registers for operands. Packed weights that are converted with words
/// of their rows, or of which groups within a block are scaled, or whose K is divided, or all of a unit at once, leave
/// room for half as many (ptxas -v, CUDA 13.0).
inline constexpr int32_t kMaxSums = 64 * 64;

constexpr int32_t most_sums(const Problem& p, int32_t k_warps) {
    if (!p.b.packed()) return kMaxSums;
    const bool words = p.b.scaling.in_conversion() || p.b.has_zeros() || folds_exponents(p.b.element);
    const bool groups = scales_blocks(p) && (p.b.scaling.k < kPackedK || k_warps > 1);
    return words || groups || multiplies_s4(p) ? kMaxSums / 2 : kMaxSums;
}

/// Whether sums of K blocks are scaled in registers.
constexpr bool promotes(const Problem& p) { return scales_blocks(p) && !p.a.scaling.in_instruction(); }

/// Whether a warp has room for so many sets of its sums.
constexpr bool has_room(const Problem& p, const WarpGrid& grid, int32_t sets) {
    const int32_t warps = grid.row_warps * grid.col_warps;
    return warps * grid.k_warps <= kMaxWarps && sets * grid.rows * grid.cols / warps <= most_sums(p, grid.k_warps);
}

/// Twice as many warps along the columns, if these have no room.
constexpr WarpGrid with_room(const Problem& p, WarpGrid grid, int32_t sets) {
    if (sets * grid.rows * grid.cols / (grid.row_warps * grid.col_warps) > most_sums(p, grid.k_warps))
        grid.col_warps *= 2;
    return grid;
}

/// Whether one set of sums may serve groups of K (mma/sm80/group_sums.cuh). It has other last bits than two, so only
/// where none are promised: experts' rows have theirs whatever the tile.
constexpr bool may_rescale(const Problem& p) {
    return p.b.near_scales != 0 && p.b.packed() && bits(p.a.element) == 16 && p.b.scaling.per_row() &&
           p.b.scaling.k == kPackedK && p.grouping == Grouping::dense && !p.batch_invariant;
}

struct DividedGrid : WarpGrid {
    bool rescales = false;
};

/// How warps divide a tile of this problem: of sums of K blocks that are scaled there are two sets, or one where no
/// warp has room for two.
constexpr DividedGrid divided(const Problem& p, WarpGrid grid) {
    // What is converted is most of the work, and each row's by one warp.
    if (p.b.packed() && grid.rows >= 32 && grid.k_warps > 1) grid.row_warps *= 2;
    if (!promotes(p)) return {with_room(p, grid, 1)};
    const WarpGrid of_two = with_room(p, grid, 2), of_one = with_room(p, grid, 1);
    const bool rescales = may_rescale(p) && grid.k_warps == 1 && !has_room(p, of_two, 2) && has_room(p, of_one, 1);
    return {rescales ? of_one : of_two, rescales};
}

template <size_t kCount>
constexpr const WarpGrid* find_among(const WarpGrid (&grids)[kCount], const Tiling& tiling) {
    const auto* const found = std::ranges::find_if(grids, [&](const WarpGrid& grid) {
        return grid.rows == tiling.tile_rows && grid.cols == tiling.tile_cols && grid.k_warps == tiling.k_warpgroups;
    });
    return found == std::end(grids) ? nullptr : found;
}

constexpr const WarpGrid* find_grid(const Tiling& tiling) {
    const WarpGrid* const found = find_among(kGrids, tiling);
    return found != nullptr ? found : find_among(kGateGrids, tiling);
}

inline std::vector<Tiling> tilings(const Problem& p) {
    std::vector<Tiling> found;
    std::vector<WarpGrid> grids(std::begin(kGrids), std::end(kGrids));
    if (has_long_runs(p)) grids.insert(grids.end(), std::begin(kGateGrids), std::end(kGateGrids));
    for (const bool swap_ab : {false, true})
        for (const WarpGrid& grid : grids)
            for (const Preconvert preconvert : {Preconvert::none, Preconvert::a, Preconvert::b})
                if (may_convert(p, preconvert, swap_ab, grid) && (preconvert != Preconvert::b || p.m >= kMinUnpackedM))
                    found.push_back({swap_ab, grid.rows, grid.cols, {}, grid.k_warps, preconvert});
    return found;
}

inline bool has_tiling(const Problem& p, const Tiling& tiling) {
    const WarpGrid* const grid = find_grid(tiling);
    return grid != nullptr && may_convert(p, tiling.preconvert, tiling.swap_ab, *grid);
}

}  // namespace deep_gemm::sm80
