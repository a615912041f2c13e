// The configs of a problem that are worth measuring.
#pragma once

#include "select.hpp"

namespace deep_gemm {

// Of 90 measured dense problems (benchmarks/results/calibration_h200.json), the best of the first eight is 0.03 % off
// the best config of all on average, the model's own pick 1.7 %. Their compilation is what a first call then costs.
inline constexpr size_t kMostMeasured = 8;
inline constexpr double kWorthMeasuring = 1.35;  // times the best estimate

/// The cheapest legal candidates by the model, selection's pick first, of different configs.
inline std::vector<Candidate> shortlist(const Problem& problem) {
    const Candidate pick = select(problem);
    std::vector<Candidate> candidates = enumerate(problem);
    std::erase_if(candidates, [&](const Candidate& c) {
        return !c.refusal.empty() || c.cost_us > kWorthMeasuring * pick.cost_us || c.config == pick.config;
    });
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& x, const Candidate& y) { return x.cost_us < y.cost_us; });
    std::vector<Candidate> shortest = {pick};
    for (const Candidate& candidate : candidates)
        if (shortest.size() < kMostMeasured && std::none_of(shortest.begin(), shortest.end(), [&](const Candidate& c) {
                return c.config == candidate.config;
            }))
            shortest.push_back(candidate);
    return shortest;
}

}  // namespace deep_gemm
