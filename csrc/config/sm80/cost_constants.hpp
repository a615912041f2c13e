// SM80: what its cost model goes by. Fitted to kernels compiled for sm_80 and run on an H100 (docs/notes/sm80.md); what
// GPUs have is from their data sheets (csrc/config/cards.hpp).
#pragma once

#include "../fields.hpp"
#include "../problem.hpp"

namespace deep_gemm {
namespace sm80 {

struct CostConstants {
    double products_per_cycle = 1024;          // of one SM: multiplications of 16 bits
    double integer_products_per_cycle = 2048;  // and of 8-bit integers,
    double memory_bytes_per_cycle = 13;        // and what its shares of memory
    double l2_bytes_per_cycle = 64;            // and of the L2 bring it
    double clock_mhz = 1750;
    double launch_us = 2.3;
    double convert_us = 2.4;  // a kernel ahead, beside what its bytes take
    double smem_bytes_per_cycle = 180;
    double first_cycles = 680;          // until the first stage has come
    double store_cycles = 0.18;         // an element of a tile
    double sum_up_cycles = 680;         // warps that split K meet
    double issue_cycles = 153;          // of a stage: barriers, copies' addresses
    double copy_warp_cycles = 0.0289;   // a byte that a warp of its own copies
    double latency_cycles = 1700;       // of a copy
    double promote_cycles = 0.0349;     // an element, and group of scales
    double widen_cycles = 0.0268;       // an element of E4M3 that a warp converts to FP16,
    double integer_cycles = 0.014;      // of packed weights to 8 bits,
    double int4_cycles = 0.0225;        // to 16 bits,
    double fp8_cycles = 0.0208;         // of E4M3
    double fp4_cycles = 0.0362;         // and of E2M1
    double bytes_under_way = 36 << 10;  // of an SM, that keep memory busy
    double tail_share = 0.24;           // of the shorter of the two times, that hides behind nothing
    // Powers (see overlapped): of what warps do, of which a scheduler has two or one; and of copies beside them.
    double two_warps = 2.76, one_warp = 1.19, copies = 6.75;
};

/// What an SM's share of memory brings it in a microsecond: by Little's law what must be under way goes by it.
constexpr double bytes_per_us(const CostConstants& constants) {
    return constants.memory_bytes_per_cycle * constants.clock_mhz;
}

/// Constants were fitted on an H100 (80GB HBM3), which ran at so much of its boost clock, and read so much of what its
/// data sheet says.
inline constexpr double kClockShare = 1750.0 / 1980, kMemoryShare = 13.0 * 1750 * 132 / 3350e3;

/// Of a GPU. Others than those of 8.0 have two fifths of an H100's share of the L2. (That is what fits times,
/// overlapped with all else: more than an SM gets by itself.)
inline CostConstants cost_constants(const GpuRates& rates, int32_t target) {
    CostConstants constants;
    constants.clock_mhz = kClockShare * rates.clock_mhz;
    constants.products_per_cycle = rates.products_per_cycle;
    constants.integer_products_per_cycle = rates.integer_products_per_cycle;
    constants.memory_bytes_per_cycle = kMemoryShare * 1e3 * rates.memory_gb_per_s / rates.sms / constants.clock_mhz;
    constants.bytes_under_way *= bytes_per_us(constants) / bytes_per_us({});
    if (target != 80) constants.l2_bytes_per_cycle = 26;
    return constants;
}

}  // namespace sm80

template <>
inline constexpr auto kFieldsOf<sm80::CostConstants> =
    std::tuple{Field{"products_per_cycle", &sm80::CostConstants::products_per_cycle},
               Field{"integer_products_per_cycle", &sm80::CostConstants::integer_products_per_cycle},
               Field{"memory_bytes_per_cycle", &sm80::CostConstants::memory_bytes_per_cycle},
               Field{"l2_bytes_per_cycle", &sm80::CostConstants::l2_bytes_per_cycle},
               Field{"clock_mhz", &sm80::CostConstants::clock_mhz},
               Field{"launch_us", &sm80::CostConstants::launch_us},
               Field{"convert_us", &sm80::CostConstants::convert_us},
               Field{"smem_bytes_per_cycle", &sm80::CostConstants::smem_bytes_per_cycle},
               Field{"first_cycles", &sm80::CostConstants::first_cycles},
               Field{"store_cycles", &sm80::CostConstants::store_cycles},
               Field{"sum_up_cycles", &sm80::CostConstants::sum_up_cycles},
               Field{"issue_cycles", &sm80::CostConstants::issue_cycles},
               Field{"copy_warp_cycles", &sm80::CostConstants::copy_warp_cycles},
               Field{"latency_cycles", &sm80::CostConstants::latency_cycles},
               Field{"promote_cycles", &sm80::CostConstants::promote_cycles},
               Field{"widen_cycles", &sm80::CostConstants::widen_cycles},
               Field{"integer_cycles", &sm80::CostConstants::integer_cycles},
               Field{"int4_cycles", &sm80::CostConstants::int4_cycles},
               Field{"fp8_cycles", &sm80::CostConstants::fp8_cycles},
               Field{"fp4_cycles", &sm80::CostConstants::fp4_cycles},
               Field{"bytes_under_way", &sm80::CostConstants::bytes_under_way},
               Field{"tail_share", &sm80::CostConstants::tail_share},
               Field{"two_warps", &sm80::CostConstants::two_warps},
               Field{"one_warp", &sm80::CostConstants::one_warp},
               Field{"copies", &sm80::CostConstants::copies}};

}  // namespace deep_gemm
