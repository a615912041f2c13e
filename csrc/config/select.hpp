// From a problem to a config: enumerate, reject with a reason, rank by estimated cost. Pure: no device, no environment,
// no state.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "../util/require.hpp"
#include "sum_order.hpp"

namespace deep_gemm {

/// Wasteful ones are refused unless settings, or other forms of D, leave no others.
template <ArchSpec Spec>
std::vector<Candidate> enumerate(const Problem& p) {
    const std::optional<SumOrder> order = wanted_order<Spec>(p);
    for (const Tolerated tolerated : {Tolerated::nothing, Tolerated::waste}) {
        std::vector<Candidate> candidates = every_candidate<Spec>(p, tolerated);
        for (Candidate& candidate : candidates)
            if (order && is_legal(candidate) && sum_order_of(candidate) != *order)
                candidate.rejection = "D's bits would depend on its dtype, or on there being a C";
        if (tolerated == Tolerated::waste || std::ranges::any_of(candidates, is_legal)) return candidates;
    }
    return {};
}

/// The cheapest legal one of those, the first of equals. No others are kept: a model's kernels are chosen for every
/// number of rows.
template <ArchSpec Spec>
std::optional<Candidate> cheapest(const Problem& p) {
    const std::optional<SumOrder> order = wanted_order<Spec>(p);
    const std::vector<Tiling> tilings = Spec::tilings(p);
    const CostsOf<Spec> costs = Spec::cost_constants(p);
    for (const Tolerated tolerated : {Tolerated::nothing, Tolerated::waste}) {
        std::optional<Candidate> best;
        for (const Tiling& tiling : tilings) {
            if (order && !may_follow(tiling, *order)) continue;
            const Candidate candidate = best ? make_candidate<Spec>(p, tiling, costs, tolerated, best->cost_us)
                                             : make_candidate<Spec>(p, tiling, costs, tolerated);
            if (!is_legal(candidate) || (order && sum_order_of(candidate) != *order)) continue;
            if (!best || candidate.cost_us < best->cost_us) best = candidate;
        }
        if (best) return best;
    }
    return std::nullopt;
}

/// On fewer SMs a form of D that only clusters make may have no kernel.
inline constexpr int32_t kMaxCtasOfCluster = 8;

/// The cheapest legal candidate, finished. Every legal problem has one, as some tile without a cluster fits everything,
/// unless set_block_size_multiple_of leaves none, or experts start where none may end.
template <ArchSpec Spec>
Choice select(const Problem& problem) {
    const std::optional<Candidate> best = cheapest<Spec>(problem);
    require(best || (problem.block_m_multiple == 1 && problem.block_n_multiple == 1),
            "no tile has a height that is a multiple of ", problem.block_m_multiple,
            " and a width that is a multiple of ", problem.block_n_multiple, Later{[&] {
                return is_m_grouped(problem.grouping)
                           ? concat(" and serves experts aligned to ", problem.m_alignment, " rows")
                           : "";
            }},
            ": see set_block_size_multiple_of");
    require(best || !is_m_grouped(problem.grouping) || problem.grouping == Grouping::masked,
            "no tile of this architecture has a height that divides ", problem.m_alignment,
            ", the alignment of experts' rows: see set_mk_alignment_for_contiguous_layout");
    require(best || problem.num_sms >= kMaxCtasOfCluster, "no tile serves M=", problem.m, " N=", problem.n,
            " K=", problem.k, " on ", problem.num_sms,
            " of the SMs, where its cluster of CTAs finds no room: see set_num_sms");
    require_runtime(best.has_value(), "no kernel config serves M=", problem.m, " N=", problem.n, " K=", problem.k,
                    " (a bug: please report it)");
    return Spec::finish(problem, *best);
}

}  // namespace deep_gemm
