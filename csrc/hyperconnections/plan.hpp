// Which kernel serves a pre-norm product, and how it divides it.
#pragma once

#include <deep_gemm/arch/sm90_prenorm_memory.cuh>

#include <variant>

#include "../device/device.hpp"
#include "../jit/kernel.hpp"

namespace deep_gemm {

struct PrenormProblem {
    int32_t m, n, k, splits;

    bool operator==(const PrenormProblem&) const = default;
};

struct PrenormPlan {
    std::variant<PrenormConfig, sm90::PrenormConfig> config;
    int32_t rows = 0, cols = 0, cluster = 1;  // of a tile
    int32_t threads = 0, smem_bytes = 0;
    int32_t row_blocks = 1, col_blocks = 1;
};

PrenormPlan plan_prenorm(const PrenormProblem& problem, int32_t sms, const DeviceFacts& device);

jit::KernelSource render_prenorm(const PrenormConfig& config);
jit::KernelSource render_prenorm(const sm90::PrenormConfig& config);

/// Plans with so many rows and columns of a CTA, CTAs of a cluster, and warpgroups (Hopper) from now on; 0: as the plan
/// says. For tuning and tests.
void force_prenorm_plan(int64_t rows, int64_t cols, int64_t cluster, int64_t warpgroups);

/// How often it was called: plans made before are others.
int64_t forced_prenorm_plans();

}  // namespace deep_gemm
