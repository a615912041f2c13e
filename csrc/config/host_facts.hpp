// What only the host asks of an architecture. What kernels ask too: arch/facts.cuh.
#pragma once

#include <deep_gemm/arch/facts.cuh>

#include <array>

namespace deep_gemm {

struct HostFacts {
    bool multiplies_exponents;  // its tensor cores do; scales that are laid out ahead are words of exponents
    bool fp32_scales_of_32;     // FP32 scales, as they are, may be for 32 of K
    bool multiplies_rows;       // of FP4 weights that lie in rows
    bool divides_mn_blocks;     // tiles may have less than all of the 64 rows that lie side by side along M or N
    bool scales_eights;         // weights' scales for groups of K may be of gates and ups that lie 8 by 8
    bool unpacks_whole_lines;   // its copy engine does, FP4 beside FP8; of other lines threads copy
};

inline constexpr std::array<HostFacts, kArchCount> kHostFacts = {{
    // In the order of `Arch`: sm80, sm90, sm100, sm120.
    {.multiplies_exponents = false,
     .fp32_scales_of_32 = true,
     .multiplies_rows = false,
     .divides_mn_blocks = false,
     .scales_eights = true,
     .unpacks_whole_lines = false},
    {.multiplies_exponents = false,
     .fp32_scales_of_32 = true,
     .multiplies_rows = false,
     .divides_mn_blocks = false,
     .scales_eights = true,
     .unpacks_whole_lines = false},
    {.multiplies_exponents = true,
     .fp32_scales_of_32 = false,
     .multiplies_rows = true,
     .divides_mn_blocks = true,
     .scales_eights = false,
     .unpacks_whole_lines = false},
    {.multiplies_exponents = true,
     .fp32_scales_of_32 = true,
     .multiplies_rows = false,
     .divides_mn_blocks = false,
     .scales_eights = true,
     .unpacks_whole_lines = true},
}};

constexpr const HostFacts& host_facts(Arch arch) { return kHostFacts[static_cast<size_t>(arch)]; }

}  // namespace deep_gemm
