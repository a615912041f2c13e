// What becomes of each tiling of a problem. `Spec` is what an architecture brings: its tilings, what becomes of one,
// why not, and what it costs.
#pragma once

#include <algorithm>
#include <concepts>
#include <limits>
#include <utility>
#include <vector>

#include "candidate.hpp"

namespace deep_gemm {

template <typename Spec>
concept ArchSpec =
    requires(const Problem& p, const Tiling& tiling, GemmConfig& c, Candidate& candidate, int64_t tiles) {
        { Spec::tilings(p) } -> std::same_as<std::vector<Tiling>>;
        { Spec::has_tiling(p, tiling) } -> std::same_as<bool>;       // among those of any problem with these operands
        { Spec::configure(p, tiling) } -> std::same_as<GemmConfig>;  // all but stages
        { Spec::rejection(p, c, tiles) } -> std::same_as<std::string_view>;
        { Spec::spills(p, c) } -> std::same_as<std::string_view>;  // what is known of ptxas; empty: it would not
        { Spec::resident_ctas(p, c) } -> std::same_as<int32_t>;
        { Spec::divide_smem(p, c, 1.0) };  // tiles of a CTA
        { Spec::footprint(c) } -> std::same_as<Footprint>;
        { Spec::smem_rejection(c) } -> std::same_as<std::string_view>;
        { Spec::waste(p, c) } -> std::same_as<std::string_view>;
        { Spec::choose_walk(p, candidate) };  // given its CTAs
        Spec::cost_constants(p);              // what costs go by, once for all candidates
        { Spec::cost_us(p, candidate, Spec::cost_constants(p)) } -> std::same_as<double>;
        // No more than that, before shared memory is divided.
        { Spec::least_us(p, candidate, Spec::cost_constants(p)) } -> std::same_as<double>;
        { Spec::finish(p, candidate) } -> std::same_as<Choice>;
    };

template <ArchSpec Spec>
using CostsOf = decltype(Spec::cost_constants(std::declval<const Problem&>()));

/// What is let pass. Spills: for who compiles such kernels to see whether they still do.
enum class Tolerated : uint8_t { nothing, waste, waste_and_spills };

/// One that takes `enough_us` or more is refused as soon as that is certain.
template <ArchSpec Spec>
Candidate make_candidate(const Problem& p, const Tiling& tiling, const CostsOf<Spec>& costs, Tolerated tolerated,
                         double enough_us = std::numeric_limits<double>::infinity()) {
    Candidate candidate{.tiling = tiling, .config = Spec::configure(p, tiling)};
    GemmConfig& c = candidate.config;
    const int64_t tiles = tile_count(p, c);
    candidate.rejection = Spec::rejection(p, c, tiles);
    if (!candidate.rejection.empty()) return candidate;
    const auto count_ctas = [&] {
        candidate.num_ctas = static_cast<int32_t>(std::min<int64_t>(tiles * c.cluster.k, Spec::resident_ctas(p, c)));
    };
    count_ctas();
    if (Spec::least_us(p, candidate, costs) >= enough_us) {
        candidate.rejection = "another takes less time";
        return candidate;
    }
    if (tolerated != Tolerated::waste_and_spills) candidate.rejection = Spec::spills(p, c);
    if (!candidate.rejection.empty()) return candidate;
    Spec::divide_smem(p, c, static_cast<double>(tiles * c.k_ctas()) / Spec::resident_ctas(p, c));
    candidate.footprint = Spec::footprint(c);
    candidate.rejection = Spec::smem_rejection(c);
    if (candidate.rejection.empty() && tolerated == Tolerated::nothing) candidate.rejection = Spec::waste(p, c);
    if (!candidate.rejection.empty()) return candidate;
    count_ctas();  // what shared memory has room for may differ
    Spec::choose_walk(p, candidate);
    candidate.cost_us = Spec::cost_us(p, candidate, costs);
    return candidate;
}

template <ArchSpec Spec>
std::vector<Candidate> every_candidate(const Problem& p, Tolerated tolerated) {
    std::vector<Candidate> candidates;
    candidates.reserve(1024);
    const CostsOf<Spec> costs = Spec::cost_constants(p);
    for (const Tiling& tiling : Spec::tilings(p))
        candidates.push_back(make_candidate<Spec>(p, tiling, costs, tolerated));
    return candidates;
}

}  // namespace deep_gemm
