// SM120: tiles beside SM80's, for products whose scales enter the instruction: sums are one set, and stages of 99 KB
// are few.
#pragma once

#include "../sm80/configure.hpp"
#include "../sm80/memory.hpp"

namespace deep_gemm::sm120 {

/// 128x96 has three stages where 128x128 has two. The others are for few tokens: two warps that divide K have deeper
/// rings than four of FP4, whose stage then has 1,024 of K; and where nothing may divide K (set_batch_invariant), 32
/// weights a CTA still give all SMs work.
inline constexpr sm80::WarpGrid kBlockScaledGrids[] = {
    {128, 96, 2, 2, 1}, {96, 128, 2, 2, 1}, {32, 16, 1, 1, 2}, {32, 8, 1, 1, 2},  {16, 16, 1, 1, 2},
    {16, 8, 1, 1, 2},   {32, 16, 2, 1, 1},  {32, 8, 2, 1, 1},  {16, 32, 1, 4, 1}, {16, 16, 1, 2, 1},
};

/// CTAs that split K of a tile, where few tiles leave SMs out: narrow ones, whose sums are few.
inline constexpr int32_t kKCtas[] = {2, 4, 8}, kMaxSplitTile = 64 * 16, kMaxCtasOfSm = 2;

constexpr bool may_split_k(const Problem& p, const sm80::WarpGrid& grid) {
    return p.grouping == Grouping::dense && grid.rows * grid.cols <= kMaxSplitTile;
}

inline const sm80::WarpGrid* find_own_grid(const Problem& p, const Tiling& tiling) {
    if (!p.a.scaling.in_instruction() || tiling.preconvert != Preconvert::none) return nullptr;
    return sm80::find_among(kBlockScaledGrids, tiling);
}

inline const sm80::WarpGrid* find_grid(const Problem& p, const Tiling& tiling) {
    const sm80::WarpGrid* const own = find_own_grid(p, tiling);
    return own != nullptr ? own : sm80::find_grid(tiling);
}

inline std::vector<Tiling> tilings(const Problem& p) {
    std::vector<Tiling> found = sm80::tilings(p);
    if (p.a.scaling.in_instruction())
        for (const bool swap_ab : {false, true})
            for (const sm80::WarpGrid& grid : kBlockScaledGrids)
                found.push_back({swap_ab, grid.rows, grid.cols, {}, grid.k_warps});
    const auto whole = std::ssize(found);
    for (std::ptrdiff_t i = 0; i < whole; ++i) {
        Tiling tiling = found[i];
        if (tiling.preconvert != Preconvert::none || !may_split_k(p, *find_grid(p, tiling))) continue;
        const int32_t rows = tiling.swap_ab ? p.n : p.m, cols = tiling.swap_ab ? p.m : p.n;
        const int64_t tiles = int64_t{ceil_div(rows, tiling.tile_rows)} * ceil_div(cols, tiling.tile_cols);
        for (const int32_t ctas : kKCtas)
            if (tiles * ctas <= kMaxCtasOfSm * p.num_sms) tiling.cluster.k = ctas, found.push_back(tiling);
    }
    return found;
}

inline bool has_tiling(const Problem& p, const Tiling& tiling) {
    const ClusterShape& cluster = tiling.cluster;
    const sm80::WarpGrid* const grid = find_grid(p, tiling);
    if (grid == nullptr || cluster.rows != 1 || cluster.cols != 1) return false;
    const bool splits = std::ranges::find(kKCtas, cluster.k) != std::end(kKCtas) && may_split_k(p, *grid) &&
                        tiling.preconvert == Preconvert::none;
    if (cluster.k != 1 && !splits) return false;
    return find_own_grid(p, tiling) != nullptr || sm80::has_tiling(p, tiling);
}

/// Why CTAs cannot split a config's K; empty where they can, or do not.
inline std::string_view split_rejection(const Problem& p, const GemmConfig& c, int64_t tiles) {
    if (c.cluster.k == 1) return "";
    if (p.batch_invariant && c.sum() != Element::s32)
        return "a split K depends on M, and set_batch_invariant forbids that";
    GemmConfig divided = c;
    sm80::divide_smem(divided, p.smem_bytes, static_cast<double>(tiles * c.cluster.k) / p.num_sms);
    if (tiles * c.cluster.k > int64_t{p.num_sms} * divided.sm80.ctas_per_sm || tiles > kMaxClusters)
        return "tiles of a split K do not all run at once";
    if (sm80::group_stages(c) > 1) return "a group of scales would be split";
    return ceil_div(p.k, c.tile.k) < 2 * c.cluster.k ? "K has too few blocks to be split" : "";
}

/// Whether the copy engine brings stages: operands that lie as `load_matrix` wants them, and FP4 beside FP8 where whole
/// boxes make a line. Threads copy packed weights, and K groups that have maps of their own.
constexpr bool copies_by_engine(const Problem& p, const GemmConfig& c) {
    const auto boxes = [&](const Operand& o) {
        return !o.mn_major() && !o.packed() && (!sm80::in_containers(c, o) || p.k % kSpreadCodes == 0);
    };
    return boxes(c.a) && boxes(c.b) && !c.group_maps && !p.threads_copy;
}

inline GemmConfig configure(const Problem& p, const Tiling& tiling) {
    GemmConfig c = sm80::configure(p, tiling, *find_grid(p, tiling));
    c.cluster = tiling.cluster;
    c.sm80.copy_engine = copies_by_engine(p, c);
    return c;
}

}  // namespace deep_gemm::sm120
