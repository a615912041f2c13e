// A checked call -> the config of its kernel, and the launch.
#pragma once

#include <deep_gemm/types.cuh>

#include "../config/archs.hpp"
#include "../jit/kernel.hpp"
#include "call.hpp"

namespace deep_gemm {

struct LogitsPlan {
    Arch arch = Arch::sm90;  // whose kernel it is, which others run too
    LogitsConfig config;
    uint32_t threads = 0, smem_bytes = 0;
};

/// Of a call's kinds and its number of rows. Equal calls get equal plans on GPUs of a target, whatever rows see.
LogitsPlan plan_logits(const LogitsCall& call, const TargetRow& target);

/// Make plans for Hopper with so many products of a tile (1 or 2) and warpgroups that multiply (2 to 4) from now on; 0:
/// as the plan says. For tuning and tests.
void force_logits_plan(int64_t products, int64_t math_groups);

jit::KernelSource render_logits(const LogitsPlan& plan);

}  // namespace deep_gemm
