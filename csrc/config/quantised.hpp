// D with scales of its own (Epilogue::output_scaling): which tiles find them.
#pragma once

#include <deep_gemm/config.cuh>
#include <deep_gemm/epilogue/run_exchange.cuh>

#include <string_view>

#include "problem.hpp"

namespace deep_gemm {

/// Whether rows of packed weights that share a scale of D are more than a padded block of them has.
constexpr bool has_long_runs(const Problem& p) {
    return p.quantises_gates() && 2 * p.output_scaling.k > kPackedRowsPadded;
}

/// Of swapped operands each token has a scale of its own in registers. `held` as below.
constexpr bool has_many_swapped_scales(const GemmConfig& c, int32_t held) {
    const int32_t most = c.b.packed() && is_m_grouped(c.grouping) ? 64 : 128;
    return c.output_scaling.any() && exchanges_runs(c, held) && c.swap_ab && c.tile.cols > most;
}
inline constexpr std::string_view kManySwappedScales =
    "it would spill registers: scales of D's rows, which are swapped";

/// Whose numbers warps of an architecture can know.
struct RunReach {
    int32_t ctas = 1;         // of a cluster, side by side along N
    bool parts_of_k = false;  // where K is split, and some warps of a tile have no sums in the end
};

/// Why a config does not quantise D; empty where it does, or need not. `held`: columns of D that a warp has side by
/// side. `some_have_none`: warps of a tile that have no sums in the end.
inline std::string_view quantise_rejection(const GemmConfig& c, int32_t held, bool some_have_none,
                                           const RunReach& reach = {}) {
    const int32_t cols = c.output_scaling.k, tile_cols = tile_d_cols(c);
    if (!c.output_scaling.any()) return "";
    if (tile_cols % cols != 0 && (cols % tile_cols != 0 || reach.ctas % run_ctas(c) != 0))
        return "columns that share a scale of D would be in several tiles";
    if (!exchanges_runs(c, held)) return "";
    if (cols % held != 0) return "columns that share a scale of D would be in parts of several warps";
    if (some_have_none && !reach.parts_of_k)
        return "warps that share a scale of D must all have sums, and do not where K is split";
    return "";
}

}  // namespace deep_gemm
