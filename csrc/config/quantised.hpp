// D with scales of its own (GemmTask::output_scaling): which tiles find them.
#pragma once

#include <deep_gemm/config.cuh>

#include <string_view>

namespace deep_gemm {

/// Why a config does not quantise D; empty where it does, or need not. `held_cols`: columns of a row of D that threads
/// who exchange what they find hold together.
inline std::string_view quantise_rejection(const GemmConfig& c, int32_t held_cols) {
    if (!c.output_scaling.any()) return "";
    if (c.swap_ab) return "a scale's columns lie in several warps";
    return held_cols % c.output_scaling.k == 0 ? "" : "a scale's columns lie in several tiles";
}

}  // namespace deep_gemm
