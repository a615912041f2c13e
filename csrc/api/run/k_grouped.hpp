// What only K-grouped calls do on their journey: operands that are aligned group by group, and launches in parts.
#pragma once

#include <span>

#include "../call/workspace.hpp"
#include "../check/checks_k_grouped.hpp"
#include "plan_cache.hpp"

namespace deep_gemm {

/// Groups that are matrices of their own, a launch for each part of them whose tensor maps fit a kernel's argument.
void launch_group_by_group(Device& device, const LaunchPlan& plan, const GemmCall& call, std::span<const int64_t> ks,
                           void* stream);

/// Scales as the kernel reads them, each in memory of its own where they had to be copied.
void copy_scales(Device& device, KGroupedCall& k, void* stream, Workspace& copy_of_a, Workspace& copy_of_b);

/// Operands as the kernel reads them, each in memory of its own where it had to be copied.
void require_readable(Device& device, KGroupedCall& k, void* stream, Workspace& copy_of_a, Workspace& copy_of_b);

}  // namespace deep_gemm
