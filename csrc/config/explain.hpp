// What selection considered for a problem, as text.
#pragma once

#include "dispatch.hpp"

namespace deep_gemm {

/// A tile, its cluster and k_warpgroups: "swapped 64x16 cluster 1x1x4 k_warpgroups 1"; "preconvert a" or "b"
/// where a kernel before the product converts that operand.
inline std::string tile_text(const Tiling& x) {
    return concat(x.swap_ab ? "swapped" : "straight", " ", x.tile_rows, "x", x.tile_cols, " cluster ", x.cluster.rows,
                  "x", x.cluster.cols, "x", x.cluster.k, " k_warpgroups ", x.k_warpgroups,
                  x.preconvert == Preconvert::none ? "" : concat(" preconvert ", name(x.preconvert)));
}

/// Every candidate, cheapest first, refused ones last, one a line: cost, CTAs, stages, config, rejection.
inline std::string explain(const Problem& p) {
    std::vector<Candidate> candidates = enumerate(p);
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& x, const Candidate& y) {
        return x.rejection.empty() != y.rejection.empty() ? x.rejection.empty() : x.cost_us < y.cost_us;
    });
    std::string text;
    for (const Candidate& x : candidates) {
        text += concat(tile_text(x.tiling), " threads ", x.footprint.threads, " stages ", x.config.stages, " smem ",
                       x.footprint.smem_bytes, " ctas ", x.num_ctas, " strip ", x.raster_group_blocks);
        text += x.rejection.empty() ? concat(": ", x.cost_us, " us\n") : concat(": refused, ", x.rejection, "\n");
    }
    return text;
}

}  // namespace deep_gemm
