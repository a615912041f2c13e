// SM120: what SM80's cost model (sm80/cost.hpp) goes by there: data sheets; no measurement stands behind it.
// benchmarks/blackwell_first_day.sh measures and fits it.
#pragma once

#include "../sm80/cost_constants.hpp"

namespace deep_gemm::sm120 {

/// RTX 5090 and RTX PRO 6000: 1,792 GB/s for 170 and 188 SMs. GB10: 273 GB/s for 48. Tensor cores multiply 512 pairs of
/// 16 bits a cycle and SM (of a GeForce, half of that), 1,024 of 8 with block scales, 2,048 of 4.
inline sm80::CostConstants cost_constants(int32_t target) {
    sm80::CostConstants constants;
    constants.clock_mhz = 2400;
    constants.products_per_cycle = 512;
    constants.integer_products_per_cycle = 1024;
    constants.memory_bytes_per_cycle = target == 121 ? 2.37 : 4.2;
    constants.l2_bytes_per_cycle = 26;
    constants.bytes_under_way *= sm80::bytes_per_us(constants) / sm80::bytes_per_us({});
    return constants;
}

}  // namespace deep_gemm::sm120
