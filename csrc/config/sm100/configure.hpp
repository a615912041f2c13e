// SM100: what becomes of a tiling.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>

#include "../candidate.hpp"
#include "../staging.hpp"

namespace deep_gemm::sm100 {

/// Whether an operand's words of scales come in blocks of 128 rows: where a kernel of ours packs them, and the tiles
/// of these rows begin with blocks.
inline bool in_blocks(bool packs, int32_t tile_extent, const Problem& p, bool of_groups) {
    return packs && !divides_k(p.grouping) && tile_extent % kScaleRows == 0 &&
           (!of_groups || p.grouping == Grouping::masked || p.m_alignment % kScaleRows == 0);
}

/// A config without stages.
inline GemmConfig configure(const Problem& p, const Tiling& tiling) {
    GemmConfig c{task_of(p),
                 p,
                 {.swap_ab = tiling.swap_ab,
                  .tile = {tiling.tile_rows, tiling.tile_cols, stage_k_of(p.a, p.b)},
                  .cluster = tiling.cluster,
                  .stages = 0,
                  .tensor_core_percent = p.tensor_core_percent,
                  .group_maps = p.group_maps != 0},
                 Arch::sm100};
    c.store.kind = store_kind(p, store_chunk(c).inner);
    if (adds_to_memory(c.store)) c.add_c = false;
    if (c.gate.any() && c.swap_ab) c.store.kind = StoreKind::direct;  // 16 columns of D a warp
    c.group_capacity = table_capacity(p, c);
    if (scales_in_instruction(c)) {
        const bool a = in_blocks(p.packs_scales_a != 0, c.tile_m(), p, is_m_grouped(p.grouping)),
                   b = in_blocks(p.packs_scales_b != 0 && !c.gate.joins(), c.tile_n(), p, false);
        c.sm100.row_blocks = c.swap_ab ? b : a, c.sm100.col_blocks = c.swap_ab ? a : b;
    }
    return c;
}

}  // namespace deep_gemm::sm100
