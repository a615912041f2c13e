// SM100: what its cost model assumes: published figures of a B200, and guesses; no measurement of ours stands behind
// them. benchmarks/blackwell_first_day.sh measures and fits them.
#pragma once

#include "../fields.hpp"

namespace deep_gemm {
namespace sm100 {

struct CostConstants {
    double clock_mhz = 1850;
    double launch_us = 3;              // launch, prologue, first copies
    double memory_gb_per_s = 7100;     // of 8,000 by the data sheet
    double l2_bytes_per_cycle = 64;    // into one SM, where all copy
    double tile_cycles = 1200;         // the way out of the last tile, and of every one with a single accumulator
    double fetch_cycles = 1400;        // from the request of a stage to its arrival
    double store_cycles = 20;          // of a warp, for each column of a tile
    double swapped_store_cycles = 34;  // the same where rows are N, and neighbours of D are in different threads
    double beyond_cycles = 4;          // of the copy engine, for a row of a box beyond the tensor (Hopper's)
    double split_us = 0.5;             // CTAs that split K meet, two of them
    double part_us = 0.03;             // and each further one (Hopper's: the exchange is the same),
    double split_cycles = 24;          // and a warp sends and adds up so much longer, for each column of a tile
    double tail_share = 0.15;          // of the memory's time, that hides behind nothing
    double promoted_cols = 1;          // of 128 rows that FP32 units multiply and add in a cycle, or multiply,
    double promote_cycles = 300;       // and from products that are over to an accumulator that has been read
    double convert_step_cycles = 60;   // of four warps, from packed words to 32 bytes of K of 128 rows
};

}  // namespace sm100

template <>
inline constexpr auto kFieldsOf<sm100::CostConstants> =
    std::tuple{Field{"clock_mhz", &sm100::CostConstants::clock_mhz},
               Field{"launch_us", &sm100::CostConstants::launch_us},
               Field{"memory_gb_per_s", &sm100::CostConstants::memory_gb_per_s},
               Field{"l2_bytes_per_cycle", &sm100::CostConstants::l2_bytes_per_cycle},
               Field{"tile_cycles", &sm100::CostConstants::tile_cycles},
               Field{"fetch_cycles", &sm100::CostConstants::fetch_cycles},
               Field{"store_cycles", &sm100::CostConstants::store_cycles},
               Field{"swapped_store_cycles", &sm100::CostConstants::swapped_store_cycles},
               Field{"beyond_cycles", &sm100::CostConstants::beyond_cycles},
               Field{"split_us", &sm100::CostConstants::split_us},
               Field{"part_us", &sm100::CostConstants::part_us},
               Field{"split_cycles", &sm100::CostConstants::split_cycles},
               Field{"tail_share", &sm100::CostConstants::tail_share},
               Field{"promoted_cols", &sm100::CostConstants::promoted_cols},
               Field{"promote_cycles", &sm100::CostConstants::promote_cycles},
               Field{"convert_step_cycles", &sm100::CostConstants::convert_step_cycles}};

}  // namespace deep_gemm
