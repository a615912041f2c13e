// SM120: what a config costs, by SM80's model (sm80/cost.hpp) with what these chips have by their data sheets; no
// measurement stands behind it.
#pragma once

#include "../sm80/cost.hpp"

namespace deep_gemm::sm120 {

/// RTX 5090 and RTX PRO 6000: 1,792 GB/s for 170 and 188 SMs. GB10: 273 GB/s for 48. Tensor cores multiply 512 pairs of
/// 16 bits a cycle and SM (of a GeForce, half of that), 1,024 of 8 with block scales, 2,048 of 4.
inline constexpr double kClockMhz = 2400;
constexpr sm80::SmFacts sm_facts(int32_t target) {
    constexpr double kProducts = 512, kL2BytesPerCycle = 26;
    return {kProducts, target == 121 ? 2.37 : 4.2, kL2BytesPerCycle};
}

inline double cost_us(const Problem& p, const Candidate& candidate) {
    Problem average = p;
    average.k = expected_k(p);
    sm80::CostModel model;
    model.clock_mhz = kClockMhz, model.facts = sm_facts(p.target);
    return model.candidate_us(average, candidate);
}

}  // namespace deep_gemm::sm120
