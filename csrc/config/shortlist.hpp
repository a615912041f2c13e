// The configs of a problem that are worth measuring.
#pragma once

#include "dispatch.hpp"

namespace deep_gemm {

// Of 90 measured dense problems (benchmarks/results/calibration_h200.json), the best of the first eight is 0.03 % off
// the best config of all on average, the model's own pick 1.7 %. Their compilation is what a first call then costs.
inline constexpr size_t kMaxMeasured = 8;
inline constexpr double kWorthMeasuring = 1.35;  // times the best estimate

/// The cheapest legal candidates by the model, selection's pick first, of different configs.
inline std::vector<Choice> shortlist(const Problem& problem) {
    std::vector<Choice> shortest = {select(problem)};
    const double most_us = kWorthMeasuring * shortest.front().cost_us;
    std::vector<Candidate> candidates = enumerate(problem);
    std::erase_if(candidates, [&](const Candidate& c) { return !c.rejection.empty() || c.cost_us > most_us; });
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& x, const Candidate& y) { return x.cost_us < y.cost_us; });
    for (const Candidate& candidate : candidates) {
        const auto is_same = [&](const Choice& c) { return c.config == candidate.config; };
        if (shortest.size() < kMaxMeasured && std::ranges::none_of(shortest, is_same))
            shortest.push_back(finish(problem, candidate));
    }
    return shortest;
}

}  // namespace deep_gemm
