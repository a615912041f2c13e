// SM120 as selection sees it (ArchSpec, csrc/config/tilings.hpp): SM80's tiles, with costs of its own.
#pragma once

#include "../sm80/spec.hpp"
#include "cost.hpp"

namespace deep_gemm::sm120 {

struct Spec : sm80::Spec {
    static double cost_us(const Problem& p, const Candidate& candidate) { return sm120::cost_us(p, candidate); }
};

}  // namespace deep_gemm::sm120
