// The journey of a call, top to bottom.
#pragma once

#include "autotune.hpp"
#include "call_settings.hpp"
#include "checks.hpp"
#include "layout_values.hpp"
#include "lender.hpp"
#include "operand_copies.hpp"
#include "params.hpp"
#include "ready_calls.hpp"
#include "scales.hpp"

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
    begin_cold_call();
    GemmCall call = check();
    check_counts(call);
    Problem& problem = call.problem;
    if (problem.m == 0 || problem.n == 0) return true;
    if (problem.num_groups == 0) return problem.grouping != Grouping::m_contiguous;
    if (problem.k == 0) return false;
    Device& device = Device::get(call.device);
    CallSettings::of(call.device).apply(problem, device.facts());
    const LaunchPlan* plan = &PlanCache::of(device).get(device, problem, generation);
    void* stream = current_stream(call.device);
    Workspace copy_of_a, copy_of_b;
    call.a = require_readable(device, call.a, problem.operand, stream, copy_of_a);
    call.b = require_readable(device, call.b, problem.operand, stream, copy_of_b);
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
