// Hopper: the constants of the cost model.
#pragma once

#include <deep_gemm/config.cuh>

#include "../cards.hpp"

namespace deep_gemm::sm90 {

/// Fitted to measured times of problems of all kinds on an H200
/// (benchmarks/calibrate.py; docs/notes/cost-model.md says how well it does). Cycles are of a clock of 1.7 GHz.
struct CostConstants {
    double clock_mhz = 1700;
    double slower_products = 1;                         // times as many cycles of wgmma
    double launch_us = 2.816;                           // launch, prologue, first copies
    double memory_gb_per_s = 4299;                      // beyond the launch
    double tflops = 2500;                               // what power allows
    double last_gb_per_s = 4000;                        // D of the last wave of tiles, which hides behind nothing
    double idle_memory = 0.3, idle_group_memory = 0.1;  // reading takes longer by so much of the SMs' idle share, if it
    double idle_from_us = 20;                           // takes longer than this at all; of experts, whose counts vary
    double idle_last_wave = 0.1;             // of a wave of masked tiles, by the CTAs that the last one leaves idle
    double added_gb_per_s = 2400;            // FP32 added to memory by the L2, straight tiles, lines asked for before,
    double added_unfetched_gb_per_s = 1360;  // or not,
    double added_swapped_gb_per_s = 941;     // swapped tiles
    double overlap_norm = 3.092;          // how fully these hide each other: 1 adds them up, infinity takes the largest
    double own_added_norm = 1.8;          // the same of additions between BF16 tiles, by math warps themselves
    double smem_bytes_per_cycle = 144.7;  // wgmma operands read and copies written
    double l2_bytes_per_cycle = 66.23;    // into one SM, where all copy
    double spare_l2 = 0.02086;            // and so much more of it where hardly any do
    double split_copies = 1;         // times as much of the L2: CTAs that split K, of weights that no other copies,
    double split_shared_copies = 1;  // or that others copy too
    double copy_64 = 1.035, copy_32 = 1.231,
           copy_16 = 1.818;                 // times as much of the L2: rows aligned to so many bytes only
    double block_norm = 9;                  // as overlap_norm, of what limits a K block
    double promote_cycles = 1;              // an accumulator of a thread, scales uniform along columns
    double promote_col_cycles = 7.945;      // scales per column
    double promote_product_cycles = 11.14;  // scales per row and per column, the product of two for each accumulator
    double promote_held_product_cycles = 8.927;  // the same, scales per column in registers
    double promote_wgmma_product_cycles = 2.73;  // the same, products by the tensor cores
    double integer_cycles = 2;                   // an accumulator of integers, which becomes FP32 first (on an H100)
    double run_cycles = 39.13;          // for each run of columns with its own block scale, where there are many
    double convert_cycles = 100;        // to convert 64 rows of packed weights, where sums are promoted (on an H100),
    double convert_ahead_cycles = 330;  // where it stands between promotion and the next issue,
    double convert_ahead_fp8_cycles = 280;  // the same to FP8,
    double convert_under_cycles = 325;      // to FP8 beside products, whose issue slots it takes,
    double convert_scaled_cycles = 450;     // and to 16 bits with scales multiplied in, where nothing is promoted
    double convert_once_cycles = 174, fold_once_cycles = 81;  // of an SM, to FP8 where sums are scaled when complete,
    double convert_once_norm = 3;                             // and how fully products hide it
    double conversion_cycles = 350;       // of an SM, to convert 64 rows to 16 bits, where sums are promoted
    double group_cycles = 275;            // where a group ends within a K block: one set of sums is rescaled,
    double group_col_cycles = 1.5;        // or of each column a second one is added up
    double subtract_cycles = 192;         // more where zero points are subtracted (on an H100),
    double subtract_narrow_cycles = 110;  // beside few columns
    double chain_cycles = 365.2;          // a K block's waits and issue, in turn
    double ahead_cycles = 118.2;          // the same for each 64 rows, where the next stage is looked for in advance
    double ordered_cycles = 40.46;        // the same, where warpgroups issue one after the other
    double overlap_cycles = 12.22;        // the same, the next block already under way
    double hidden_cycles = 15.6;          // of a K block, by warpgroups that take turns
    double fetch_cycles = 1499;           // until a stage that was let go is full again
    double multicast_us = 0.2859;         // until the CTAs of a pair have met
    double multicast_cycles = 56.09;      // a K block's wait for the slower of them,
    double multicast_wide_cycles = -3;    // of a stage with half a block of packed weights in a wide tile,
    double multicast_tall_cycles = -22;   // where a warpgroup has another 64 rows meanwhile (the L2 is asked less)
    double tile_cycles = 267.9;
    // An element of D at the end of a tile; late: while the next tile is under way. What calibrations do not have is
    // read off docs/notes/cost-model.md ("Other D"): FP32 that is not added, C that is read, BF16 past the copy engine.
    double tile_cycles_per_element = 0.02398, late_cycles_per_element = 0.03476;  // BF16
    double late_tall_cycles_per_element = 0.02577;                                // the same late, of 256 rows
    double fp32_cycles_per_element = 0.142;                                       // FP32, added to memory
    double late_fp32_cycles_per_element = 0.061;                                  // the same late, beside products
    double plain_fp32_cycles_per_element = 0.09, late_plain_fp32_cycles_per_element = 0.15;
    double c_cycles_per_element = 0.2, late_c_cycles_per_element = 0.3, swapped_c_cycles_per_element = 0.5;
    double direct_cycles_per_element = 0.35;
    double narrow_pieces = 1.1;  // times as long to write, where D goes in pieces of less than 128 bytes a row
    double padding_cycles = 64.49, padding_tile_cycles = 1678;  // a K block's and a tile's, where padding is left out
    double split_us = 0.5001, part_us = 0.03059;      // adding up a K that a cluster splits in two, each further part,
    double turn_us = 0.02031;                         // each further warpgroup that shares it,
    double split_us_per_element = 0.0002075;          // and each element that comes from elsewhere
    double shared_us = 3.088, shared_cycles = 8.039;  // where pairs share the last tiles: adding twice, each K block

    /// Operands of 16 bits have some constants of their own, fitted to problems of theirs: nothing is promoted.
    /// Integers have them too, byte by byte: theirs were not fitted.
    /// Beside packed weights, whose memory is as busy as FP8's, and where sums of K blocks are scaled, they are FP8's.
    static CostConstants of(Element element, bool as_fp8 = false) {
        CostConstants x;
        if (as_fp8) return x;
        const bool integer = sum_of(element) == Element::s32;
        if (bits(element) == 16 || integer) {
            x.clock_mhz = 1930;
            x.memory_gb_per_s = 3901;
            x.tflops = 1553;
            x.last_gb_per_s = 3121;
            x.overlap_norm = 3.251;
            x.smem_bytes_per_cycle = 146.5;
            x.l2_bytes_per_cycle = 82.24;
            x.split_copies = 2.247;
            x.split_shared_copies = 1.35;
            x.overlap_cycles = 1;
            x.fetch_cycles = 0;
            x.spare_l2 = 0.2796;
            x.multicast_tall_cycles = 31.43;
            x.part_us = 0.04195;
            x.tile_cycles = 1751;
            x.split_us = 0.05083;
            x.shared_us = 1.7;
            x.shared_cycles = 19;
            x.turn_us = 0.6213;
            x.split_us_per_element = 0.0002;
            x.added_gb_per_s = 1785;  // beside which own_added_norm was chosen
            x.added_unfetched_gb_per_s = 1785;
            x.added_swapped_gb_per_s = 1258;
            x.fp32_cycles_per_element = 0.1535;
        }
        if (integer) x.tflops *= 2;
        return x;
    }
};

/// The same for another GPU than the H200 that they were fitted on: its clock, its memory, its tensor cores, and its
/// power, as if a product always took the same energy.
inline CostConstants cost_constants(CostConstants x, const GpuRates& gpu) {
    static const GpuRates fitted = find_card("NVIDIA H200")->rates();
    x.clock_mhz *= static_cast<double>(gpu.clock_mhz) / fitted.clock_mhz;
    x.memory_gb_per_s *= static_cast<double>(gpu.memory_gb_per_s) / fitted.memory_gb_per_s;
    x.tflops *= static_cast<double>(gpu.watts) / fitted.watts;
    x.slower_products = static_cast<double>(fitted.products_per_cycle) / gpu.products_per_cycle;
    return x;
}

}  // namespace deep_gemm::sm90
