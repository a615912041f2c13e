// The journey of a call, top to bottom.
#pragma once

#include "autotune.hpp"
#include "call_settings.hpp"
#include "checks.hpp"
#include "layout_values.hpp"
#include "params.hpp"
#include "ready_calls.hpp"
#include "scales.hpp"
#include "transpose.hpp"

namespace deep_gemm {

/// `check` makes the call that `key` stands for, or throws. Returns false where the product is empty (K = 0, or nothing
/// but padding for want of experts), so that D is C or zero: the caller writes it.
template <typename Check>
bool run_gemm(const CallKey& key, Check&& check) {
    const uint64_t generation = Generation::now();  // before anything is read that it counts
    ReadyCalls& calls = ReadyCalls::of_thread();
    if (const ReadyCall* known = calls.find(key, generation)) {
        known->launch();
        return true;
    }
    GemmCall call = check();
    check_counts(call);
    Problem& problem = call.problem;
    if (problem.m == 0 || problem.n == 0) return true;
    if (problem.num_groups == 0) return problem.grouping != Grouping::m_contiguous || !call.zero_padding;
    if (problem.k == 0) return false;
    Device& device = Device::get(call.device);
    CallSettings::of(call.device).apply(problem, device.facts());
    const LaunchPlan* plan = &PlanCache::of(device).get(device, problem, generation);
    void* stream = current_stream(call.device);
    Workspace copy_of_a, copy_of_b;
    if (problem.operand == ElementType::e4m3) {  // BF16 is multiplied as it lies
        call.a = require_k_major(device, call.a, stream, copy_of_a);
        call.b = require_k_major(device, call.b, stream, copy_of_b);
    }
    const ScaleWorkspace workspace_a = require_layout(device, call.scales_a, stream);
    const ScaleWorkspace workspace_b = require_layout(device, call.scales_b, stream);
    ReadyCall ready;
    const auto launch = [&](const GemmCall& any_call, const LaunchPlan& any_plan) {
        ready.device = &device, ready.kernel = any_plan.kernel, ready.shape = may_start_early(any_plan.shape, device);
        fill_params(ready.params, device, any_call, any_plan);
        ready.extents = extents_of(any_call);
        ready.launch();
    };
    LaunchPlan tuned;
    if (plan->untuned) [[unlikely]] {
        tuned = tune(device, call, *plan, stream, launch);
        plan = &tuned;
    }
    launch(call, *plan);
    // Memory of a workspace belongs to this call only, and what fills it must be launched again. A call whose plan may
    // still be tuned, or whose counts are read, must come here again.
    if (!copy_of_a && !copy_of_b && !workspace_a && !workspace_b && !plan->untuned && !reads_counts(call))
        calls.remember(key, generation, ready);
    return true;
}

}  // namespace deep_gemm
