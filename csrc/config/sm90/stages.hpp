// Hopper: how many stages a ring had better have.
#pragma once

#include <deep_gemm/plan.cuh>

#include "schedule.hpp"

namespace deep_gemm::sm90 {

/// Stages that are worth more than buffers for all of D. Three do for 256 rows with several tiles a CTA, and for the
/// largest BF16 tiles where a CTA has more than four, if operands come from the L2: in dense problems, and where
/// experts are tall. (Of up to four tiles a CTA, wants_stage gives most dense ones a fourth stage.)
/// docs/performance.md.
inline int32_t least_stages(const GemmConfig& c, double tiles_per_cta, int32_t group_rows) {
    const bool fp8 = c.tile.rows == 256 && c.look_ahead && tiles_per_cta > 1,
               bf16 = !c.scaled() && c.tile.rows * c.tile.cols >= 128 * 208 && tiles_per_cta > 4;
    return (c.grouping == Grouping::dense || has_tall_experts(c, group_rows)) && (fp8 || bf16) ? 3 : 4;
}

/// Whether one stage more is worth more than buffers for all of D, which are for a next tile: where a CTA has few
/// tiles. Their operands come from memory, and take longest while D goes there. (Not buffers of less than 128 bytes a
/// row: of those there are so many that a tile's end waits for the few that are left. BF16 tiles of 128 rows and more,
/// with twice as many K blocks, do not mind.) docs/performance.md.
inline bool wants_stage(const GemmConfig& c, double tiles_per_cta) {
    if (c.grouping != Grouping::dense || c.output != ElementType::bf16 || c.k_parts() > 1) return false;
    const bool wide = store_chunk(c).swizzle_bytes() == kSwizzleBytes;
    if (!wide && (c.scaled() || c.tile.rows < 128)) return false;
    return tiles_per_cta <= (c.scaled() && c.tile.rows <= 128 ? 6 : 4);
}

/// Whether parts of sums, and D, had better lie where stages were. `c` has the stages that fit beside them. Warpgroups
/// that take turns hold two to six stages, and a ring that is not deep runs dry while weights come from memory. CTAs
/// that split K would have to meet first (docs/performance.md).
inline bool reuses_ring(const GemmConfig& c) { return c.k_warpgroups > 1 && c.cluster.k == 1 && c.stages <= 12; }

}  // namespace deep_gemm::sm90
