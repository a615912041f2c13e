// SM100: what becomes of a tiling.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>

#include "../candidate.hpp"

namespace deep_gemm::sm100 {

/// Whether no chunk that the copy engine stores has columns on both sides of a gap between heads, and all start at
/// multiples of 16 bytes.
inline bool fits_chunks(const GemmConfig& c) {
    const int32_t columns = store_chunk(c).inner;
    return (c.heads.left | c.heads.right) % columns == 0 && bytes_of(c.output, c.heads.skipped) % 16 == 0;
}

/// FP32 of M groups is written row by row, so that a masked D keeps what is behind its groups' rows.
inline StoreKind store_kind(const Problem& p, const GemmConfig& c) {
    const bool staged = p.aligned_store && fits_chunks(c) && (bits(p.output) == 16 || !is_m_grouped(p.grouping));
    if (adds_in_place(p)) return staged ? StoreKind::tma_add : StoreKind::direct_add;
    return staged ? StoreKind::tma : StoreKind::direct;
}

/// Whether an operand's words of scales come in blocks of 128 rows: where a kernel of ours packs them, and the tiles
/// of these rows begin with blocks.
inline bool in_blocks(bool packs, int32_t tile_extent, const Problem& p, bool of_groups) {
    return packs && !divides_k(p.grouping) && tile_extent % kScaleRows == 0 &&
           (!of_groups || p.grouping == Grouping::masked || p.m_alignment % kScaleRows == 0);
}

/// A config without stages.
inline GemmConfig configure(const Problem& p, const Tiling& tiling) {
    GemmConfig c{{.grouping = p.grouping,
                  .a = p.a,
                  .b = p.b,
                  .output = p.output,
                  .add_c = p.add_c != 0 && !adds_in_place(p),
                  .asymmetric_a = p.asymmetric_a != 0,
                  .alpha = p.alpha != 0,
                  .bias = p.bias,
                  .shape = p.compiled,
                  .heads = p.heads},
                 {.swap_ab = tiling.swap_ab,
                  .tile = {tiling.tile_rows, tiling.tile_cols, stage_k_of(p.a, p.b)},
                  .cluster = tiling.cluster,
                  .stages = 0,
                  .tensor_core_percent = p.tensor_core_percent,
                  .group_maps = p.group_maps != 0},
                 Arch::sm100};
    c.store.kind = store_kind(p, c);
    c.group_capacity = table_capacity(p, c);
    if (scales_in_instruction(c)) {
        const bool a = in_blocks(p.packs_scales_a != 0, c.tile_m(), p, is_m_grouped(p.grouping)),
                   b = in_blocks(p.packs_scales_b != 0, c.tile_n(), p, false);
        c.sm100.row_blocks = c.swap_ab ? b : a, c.sm100.col_blocks = c.swap_ab ? a : b;
    }
    return c;
}

}  // namespace deep_gemm::sm100
