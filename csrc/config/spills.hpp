// Families of configs that are refused because ptxas would spill their kernels' registers. Each architecture has a list
// (ARCH/spills.hpp). tests/kernels/test_spill_families.py compiles kernels of each, and fails where none spills any
// more.
#pragma once

#include <deep_gemm/config.cuh>
#include <deep_gemm/epilogue/run_exchange.cuh>

#include <span>
#include <string_view>

#include "problem.hpp"

namespace deep_gemm {

struct SpillFamily {
    std::string_view rejection;  // why a config of it is refused: its name
    bool (*has)(const Problem& p, const GemmConfig& c);
};

/// Why a config would spill; empty where it would not, for all that is known.
inline std::string_view spill_rejection(std::span<const SpillFamily> families, const Problem& p, const GemmConfig& c) {
    for (const SpillFamily& family : families)
        if (family.has(p, c)) return family.rejection;
    return "";
}

}  // namespace deep_gemm
