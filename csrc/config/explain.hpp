// What selection considered for a problem, as text.
#pragma once

#include "dispatch.hpp"

namespace deep_gemm {

/// The grouping of this name.
inline Grouping grouping_named(std::string_view wanted) {
    std::string known;
    for (size_t i = 0; i < std::size(Names<Grouping>::kValues); ++i) {
        if (Names<Grouping>::kValues[i] == wanted) return static_cast<Grouping>(i);
        known += concat(i > 0 ? ", " : "", Names<Grouping>::kValues[i]);
    }
    fail(ErrorKind::value, "the grouping must be one of ", known, ", got ", wanted);
}

/// A tile, its cluster and turns: "swapped 64x16 cluster 1x1x4 turns 1"; and "ahead a" or "b" where a kernel before
/// the product converts that operand.
inline std::string tile_text(const Tiling& x) {
    return concat(x.swap_ab ? "swapped" : "straight", " ", x.tile_rows, "x", x.tile_cols, " cluster ", x.cluster.rows,
                  "x", x.cluster.cols, "x", x.cluster.k, " turns ", x.turns,
                  x.ahead == Ahead::none ? "" : concat(" ahead ", name(x.ahead)));
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
