// SM120: tiles beside SM80's, for products whose scales enter the instruction: sums are one set, and stages of 99 KB
// are few.
#pragma once

#include "../sm80/configure.hpp"

namespace deep_gemm::sm120 {

/// 128x96 has three stages where 128x128 has two. The others are for few tokens: two warps that divide K have deeper
/// rings than four of FP4, whose stage then has 1,024 of K; and where nothing may divide K (set_batch_invariant), 32
/// weights a CTA still give all SMs work.
inline constexpr sm80::WarpGrid kBlockScaledGrids[] = {
    {128, 96, 2, 2, 1}, {96, 128, 2, 2, 1}, {32, 16, 1, 1, 2}, {32, 8, 1, 1, 2},  {16, 16, 1, 1, 2},
    {16, 8, 1, 1, 2},   {32, 16, 2, 1, 1},  {32, 8, 2, 1, 1},  {16, 32, 1, 4, 1}, {16, 16, 1, 2, 1},
};

inline const sm80::WarpGrid* find_own_grid(const Problem& p, const Tiling& tiling) {
    if (!p.a.scaling.in_instruction() || tiling.preconvert != Preconvert::none) return nullptr;
    return sm80::find_among(kBlockScaledGrids, tiling);
}

inline std::vector<Tiling> tilings(const Problem& p) {
    std::vector<Tiling> found = sm80::tilings(p);
    if (!p.a.scaling.in_instruction()) return found;
    for (const bool swap_ab : {false, true})
        for (const sm80::WarpGrid& grid : kBlockScaledGrids)
            found.push_back({swap_ab, grid.rows, grid.cols, {}, grid.k_warps});
    return found;
}

inline bool has_tiling(const Problem& p, const Tiling& tiling) {
    return find_own_grid(p, tiling) != nullptr || sm80::has_tiling(p, tiling);
}

/// Whether the copy engine brings stages: operands that lie as `load_matrix` wants them. Threads copy packed weights,
/// FP4 beside FP8, and K groups that have maps of their own.
constexpr bool copies_by_engine(const GemmConfig& c) {
    const auto boxes = [&](const Operand& o) { return !o.mn_major() && !o.packed() && !sm80::in_containers(c, o); };
    return boxes(c.a) && boxes(c.b) && !c.group_maps;
}

inline GemmConfig configure(const Problem& p, const Tiling& tiling) {
    const sm80::WarpGrid* const own = find_own_grid(p, tiling);
    GemmConfig c = sm80::configure(p, tiling, own != nullptr ? *own : *sm80::find_grid(tiling));
    c.sm80.copy_engine = copies_by_engine(c);
    return c;
}

}  // namespace deep_gemm::sm120
