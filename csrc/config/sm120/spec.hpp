// SM120 as selection sees it (ArchSpec, csrc/config/tilings.hpp): SM80's tiles, with costs of its own.
#pragma once

#include "../sm80/spec.hpp"
#include "cost_constants.hpp"

namespace deep_gemm::sm120 {

struct Spec : sm80::Spec {
    static sm80::CostConstants cost_constants(const Problem& p) { return sm120::cost_constants(p.target); }
    using sm80::Spec::cost_us;
    static double cost_us(const Problem& p, const Candidate& candidate) {
        return cost_us(p, candidate, cost_constants(p));
    }
};

}  // namespace deep_gemm::sm120
