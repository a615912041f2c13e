// SM80: what becomes of a tiling.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>

#include "../candidate.hpp"
#include "tiles.hpp"

namespace deep_gemm::sm80 {

/// What the instruction takes of a problem's operands.
constexpr Element multiplied_as(const Problem& p) {
    if (multiplies_s4(p)) return Element::s4i;
    if (p.a.element == Element::e2m1r) return p.b.element;
    if (p.a.element == Element::e4m3) return multiplies_e4m3(p.target) ? Element::e4m3 : Element::fp16;
    return p.a.element;
}

/// A config without stages.
inline GemmConfig configure(const Problem& given, const Tiling& tiling, const WarpGrid& undivided) {
    const Problem p = converted(given, tiling.preconvert);
    const DividedGrid grid = divided(p, undivided);
    Operand a = p.a;
    if (multiplies_s4(p)) a.element = Element::s4i;
    GemmConfig c{task_of(p),
                 p,
                 {.swap_ab = tiling.swap_ab,
                  .tile = {grid.rows, grid.cols, grid.k_warps * stage_k(a, p.b)},
                  .col_warps = grid.col_warps,
                  .stages = 0,
                  .store = {.kind = StoreKind::direct},
                  .group_maps = p.group_maps != 0},
                 p.arch,
                 {.row_warps = grid.row_warps, .k_warps = grid.k_warps, .multiplied_as = multiplied_as(p)}};
    c.a = a;
    c.b.near_scales = grid.rescales ? 1 : 0;
    c.group_capacity = table_capacity(p, c);
    return c;
}

}  // namespace deep_gemm::sm80
