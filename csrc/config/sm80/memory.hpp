// SM80: CTAs of an SM, and the stages that each has.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>

#include <algorithm>
#include <cmath>

#include "../problem.hpp"

namespace deep_gemm::sm80 {

/// More buy nothing.
inline constexpr int32_t kMaxStages = 8;
/// What an SM keeps of its shared memory for each CTA.
inline constexpr int32_t kReservedBytes = 1024;

/// CTAs that an SM has registers for: of four warps with many sums two, so that one stores while the other multiplies,
/// of eight one; with few sums one more.
constexpr int32_t wanted_ctas(const GemmConfig& c) {
    const bool many_scales = widens(c, c.b) && c.col_scales().per_row() && (c.row_scales().per_row() || widens_both(c));
    const int32_t sets = promotes(c) && (c.b.packed() || many_scales || scale_groups(c) > 1) ? 2 : 1;
    const bool few_sums = sets * c.tile.rows * c.tile.cols <= 64 * 64;
    return (warps(c) > 4 ? 1 : 2) + few_sums;
}

inline int32_t stages_within(GemmConfig c, int32_t smem_bytes) {
    c.stages = 0;
    const int32_t without = plan_smem(c).bytes;
    c.stages = 1;
    const int32_t of_each = plan_smem(c).bytes - without;
    return std::clamp((smem_bytes - without) / of_each, 0, kMaxStages);
}

/// As many CTAs as have three stages each, else fewer; no more than there are tiles for, so that few tiles have deep
/// rings.
inline void divide_smem(GemmConfig& c, int32_t smem_bytes, double tiles_per_sm) {
    const int32_t with_tiles = static_cast<int32_t>(std::clamp(std::ceil(tiles_per_sm), 1.0, 8.0));
    for (c.sm80.ctas_per_sm = std::min(wanted_ctas(c), with_tiles);; --c.sm80.ctas_per_sm) {
        c.stages = stages_within(c, (smem_bytes + kReservedBytes) / c.sm80.ctas_per_sm - kReservedBytes);
        if (c.stages >= 3 || c.sm80.ctas_per_sm == 1) return;
    }
}

}  // namespace deep_gemm::sm80
