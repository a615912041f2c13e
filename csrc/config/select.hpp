// From a problem to a config: enumerate, reject with a reason, rank by estimated cost. Pure: no device, no environment,
// no state. `Spec` is what an architecture brings: its tilings, what becomes of one, why not, and what it costs.
#pragma once

#include <algorithm>
#include <concepts>
#include <vector>

#include "../util/require.hpp"
#include "candidate.hpp"

namespace deep_gemm {

template <typename Spec>
concept ArchSpec =
    requires(const Problem& p, const Tiling& tiling, GemmConfig& c, Candidate& candidate, int64_t tiles) {
        { Spec::tilings(p) } -> std::same_as<std::vector<Tiling>>;
        { Spec::has_tiling(p, tiling) } -> std::same_as<bool>;       // among those of any problem with these operands
        { Spec::configure(p, tiling) } -> std::same_as<GemmConfig>;  // all but stages
        { Spec::rejection(p, c, tiles) } -> std::same_as<std::string_view>;
        { Spec::resident_ctas(p, c) } -> std::same_as<int32_t>;
        { Spec::divide_smem(p, c, 1.0) };  // tiles of a CTA
        { Spec::footprint(c) } -> std::same_as<Footprint>;
        { Spec::smem_rejection(c) } -> std::same_as<std::string_view>;
        { Spec::waste(p, c) } -> std::same_as<std::string_view>;
        { Spec::choose_walk(p, candidate) };  // given its CTAs
        { Spec::cost_us(p, candidate) } -> std::same_as<double>;
        { Spec::finish(p, candidate) } -> std::same_as<Choice>;
    };

template <ArchSpec Spec>
Candidate make_candidate(const Problem& p, const Tiling& tiling, bool tolerate_waste) {
    Candidate candidate{.tiling = tiling, .config = Spec::configure(p, tiling)};
    GemmConfig& c = candidate.config;
    const int64_t tiles = tile_count(p, c);
    candidate.rejection = Spec::rejection(p, c, tiles);
    if (!candidate.rejection.empty()) return candidate;
    Spec::divide_smem(p, c, static_cast<double>(tiles * c.k_ctas()) / Spec::resident_ctas(p, c));
    candidate.footprint = Spec::footprint(c);
    candidate.rejection = Spec::smem_rejection(c);
    if (candidate.rejection.empty() && !tolerate_waste) candidate.rejection = Spec::waste(p, c);
    if (!candidate.rejection.empty()) return candidate;
    candidate.num_ctas = static_cast<int32_t>(std::min<int64_t>(tiles * c.cluster.k, Spec::resident_ctas(p, c)));
    Spec::choose_walk(p, candidate);
    candidate.cost_us = Spec::cost_us(p, candidate);
    return candidate;
}

/// Wasteful ones are refused unless settings leave no others.
template <ArchSpec Spec>
std::vector<Candidate> enumerate(const Problem& p, bool tolerate_waste = false) {
    std::vector<Candidate> candidates;
    candidates.reserve(1024);
    for (const Tiling& tiling : Spec::tilings(p)) candidates.push_back(make_candidate<Spec>(p, tiling, tolerate_waste));
    const auto serves = [](const Candidate& candidate) { return candidate.rejection.empty(); };
    return tolerate_waste || std::ranges::any_of(candidates, serves) ? candidates : enumerate<Spec>(p, true);
}

/// The cheapest legal candidate, finished. Every legal problem has one, as some tile without a cluster fits everything,
/// unless set_block_size_multiple_of leaves none, or experts start where none may end.
template <ArchSpec Spec>
Choice select(const Problem& problem) {
    const std::vector<Candidate> candidates = enumerate<Spec>(problem);
    const Candidate* best = nullptr;
    for (const Candidate& candidate : candidates)
        if (candidate.rejection.empty() && (best == nullptr || candidate.cost_us < best->cost_us)) best = &candidate;
    require(best != nullptr || (problem.block_m_multiple == 1 && problem.block_n_multiple == 1),
            "no tile has a height that is a multiple of ", problem.block_m_multiple,
            " and a width that is a multiple of ", problem.block_n_multiple,
            is_m_grouped(problem.grouping) ? concat(" and serves experts aligned to ", problem.m_alignment, " rows")
                                           : "",
            ": see set_block_size_multiple_of");
    require(best != nullptr || !is_m_grouped(problem.grouping) || problem.grouping == Grouping::masked,
            "no tile of this architecture has a height that divides ", problem.m_alignment,
            ", the alignment of experts' rows: see set_mk_alignment_for_contiguous_layout");
    require_runtime(best != nullptr, "no kernel config serves M=", problem.m, " N=", problem.n, " K=", problem.k,
                    " (a bug: please report it)");
    return Spec::finish(problem, *best);
}

}  // namespace deep_gemm
