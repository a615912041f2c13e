// Both products of a MoE layer in one launch: gate and up, whose result is quantised, and down, which reads it.
#pragma once

#include <deep_gemm/params.cuh>
#include <deep_gemm/ranks/config.cuh>

namespace deep_gemm {

struct MoeLayerConfig {
    GemmConfig up, down;

    constexpr bool operator==(const MoeLayerConfig&) const = default;
};

/// As objects of their own (config.cuh).
template <Constant<MoeLayerConfig> c>
struct MoeLayerParts {
    static constexpr GemmConfig kUp = c.up, kDown = c.down;
};

/// Whether a tile of `down` reads rows of one block of `up` only, and CTAs that compute tiles of both have one shape.
constexpr bool fit_together(const GemmConfig& up, const GemmConfig& down) {
    return up.swap_ab == down.swap_ab && up.tile_m() == down.tile_m() && up.cluster == down.cluster &&
           up.sm90.math_warpgroups == down.sm90.math_warpgroups && up.group_capacity == down.group_capacity;
}

/// What roles of this kernel do without: sums that several CTAs or warpgroups have parts of, scales that are operands
/// of wgmma, padding that is left out.
constexpr bool may_be_in_layer(const GemmConfig& c) {
    return c.grouping == Grouping::m_psum && c.cluster.k == 1 && c.split_k == SplitK{} && !c.sm90.wgmma_products &&
           !c.skips_padding && !c.group_maps;
}

struct DownParams : GemmParamsWithSteps {
    int32_t up_blocks;   // tiles of `up` side by side along N, as clusters take them
    int32_t head_start;  // tiles of `down` that are as much work as one of `up`
};

struct MoeLayerParams {
    GemmParamsWithSteps up;
    DownParams down;
    uint32_t* ready;  // of each block of rows: ReadyRows
};

inline constexpr int32_t kPullWarps = 2;  // of a CTA
inline constexpr int32_t kSentCols = 32;  // of a row, of which four lanes store 8 each

/// Whether results can go from registers to the ranks whose they are.
constexpr bool may_be_sent(const GemmConfig& c) { return c.swap_ab || c.held_cols() % kSentCols == 0; }

/// Where rows come from other ranks and results go there.
struct MoeLayerRanksParams : MoeLayerParams {
    PullParams travel;
    uint32_t* pulled;   // of each block of rows that there is room for: PulledRows
    int32_t room_rows;  // that lie here at the same time
};

}  // namespace deep_gemm
