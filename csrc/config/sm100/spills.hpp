// SM100: what would spill registers.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>

#include "../quantised.hpp"
#include "../spills.hpp"

namespace deep_gemm::sm100 {

inline constexpr SpillFamily kSpills[] = {
    {"it would spill registers: integers of 128 columns a thread are quantised",
     [](const Problem&, const GemmConfig& c) {
         return c.output_scaling.any() && c.sum() == Element::s32 && !c.swap_ab && chunk_cols(c) >= 128;
     }},
    {"it would spill registers: a walk by counts beside zero points of 8 bits for each 32 of K",
     [](const Problem&, const GemmConfig& c) {
         return c.grouping == Grouping::m_psum && c.b.element == Element::u8 && c.b.zeros_k == 32 && c.tile.cols >= 128;
     }},
    {"it would spill registers: promoted sums of 256 columns are quantised",
     [](const Problem&, const GemmConfig& c) {
         return promotes(c) && !c.swap_ab && c.output_scaling.any() && c.tile.cols == 256;
     }},
    {"it would spill registers: half of 256 columns a warp beside the columns' block scales",
     [](const Problem&, const GemmConfig& c) {
         return promotes(c) && !c.swap_ab && c.has_block_scales() && c.tile.cols == 256;
     }},
    {"it would spill registers: 192 columns of experts' gates and ups beside their block scales",
     [](const Problem&, const GemmConfig& c) {
         return promotes(c) && !c.swap_ab && c.has_block_scales() && c.gate.blocks_in_halves() && c.tile.cols == 192 &&
                is_m_grouped(c.grouping);
     }},
    {kManySwappedScales,
     [](const Problem&, const GemmConfig& c) { return has_many_swapped_scales(c, piece_d_cols(c)); }},
};

}  // namespace deep_gemm::sm100
