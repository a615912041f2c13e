// Hopper: how shared memory is divided between stages and buffers for D.
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>

#include <algorithm>

#include "schedule.hpp"

namespace deep_gemm::sm90 {

/// Stages that are worth more than buffers for all of D. Three do for 256 rows with several tiles a CTA, and for the
/// largest BF16 tiles where a CTA has more than four, if operands come from the L2: in dense problems. (Of up to four
/// tiles a CTA, wants_stage gives most of them a fourth stage.) docs/notes/tried.md.
inline int32_t least_stages(const GemmConfig& c, double tiles_per_cta) {
    const bool fp8 = c.tile.rows == 256 && c.sm90.look_ahead && tiles_per_cta > 1,
               bf16 = !c.scaled() && c.tile.rows * c.tile.cols >= 128 * 208 && tiles_per_cta > 4;
    return has_fixed_extents(c.grouping) && (fp8 || bf16) ? 3 : 4;
}

/// Whether one stage more is worth more than buffers for all of D, which are for a next tile: where a CTA has few
/// tiles. Their operands come from memory, and take longest while D goes there. (Not buffers of less than 128 bytes a
/// row: of those there are so many that a tile's end waits for the few that are left. BF16 tiles of 128 rows and more,
/// with twice as many K blocks, do not mind.) docs/notes/tried.md.
inline bool wants_stage(const GemmConfig& c, double tiles_per_cta) {
    if (!has_fixed_extents(c.grouping) || bits(c.output) != 16 || k_parts(c) > 1) return false;
    const bool wide = store_chunk(c).swizzle_bytes() == kSwizzleBytes;
    if (!wide && (c.scaled() || c.tile.rows < 128)) return false;
    return tiles_per_cta <= (c.scaled() && c.tile.rows <= 128 ? 6 : 4);
}

/// Whether parts of sums, and D, had better lie where stages were. `c` has the stages that fit beside them. Warpgroups
/// that take turns hold two to six stages, and a ring that is not deep runs dry while weights come from memory. CTAs
/// that split K would have to meet first (docs/notes/tried.md).
inline bool reuses_ring(const GemmConfig& c) { return c.split_k.warpgroups > 1 && c.cluster.k == 1 && c.stages <= 12; }

/// As many stages as shared memory holds, each turn having the same number; more than 16 buy nothing.
inline int32_t most_stages(GemmConfig config) {
    config.stages = 0;
    const int32_t without = plan_smem(config).bytes;
    config.stages = 1;
    const int32_t of_each = plan_smem(config).bytes - without;
    const int32_t stages = std::clamp((kMaxSmemBytes - without) / of_each, 0, 16);
    return stages - stages % config.split_k.warpgroups;
}

/// Fewer buffers for D, by halves, until the ring has so many stages; if need be, a single one.
inline void trade_buffers(GemmConfig& c, int32_t stages) {
    while (c.stages < stages && c.store.buffers > 1 && is_staged(c.store)) {
        c.store.buffers = ceil_div(c.store.buffers, 2);
        c.stages = most_stages(c);
    }
}

/// Divides shared memory between buffers for D and the ring of stages. Buffers for all of a tile: its stores drain
/// while the next one is multiplied. Where that leaves few stages, fewer buffers, of which the later ones then wait,
/// rather than a ring that runs dry; and where one stage more is worth it, if fewer buffers make room for it.
inline void divide_smem(GemmConfig& c, double tiles_per_cta) {
    c.store.buffers = store_chunks_per_tile(c);
    c.stages = most_stages(c);
    trade_buffers(c, least_stages(c, tiles_per_cta));
    if (reuses_ring(c)) {
        GemmConfig shared = c;
        shared.split_k.parts_in_ring = true;
        shared.store.buffers = store_chunks_per_tile(c);
        shared.stages = most_stages(shared);
        if (shared.stages > c.stages && parts_fit_ring(shared)) c = shared;
    }
    if (!wants_stage(c, tiles_per_cta)) return;
    GemmConfig deeper = c;
    trade_buffers(deeper, c.stages + 1);
    if (deeper.stages > c.stages) c = deeper;
}

}  // namespace deep_gemm::sm90
