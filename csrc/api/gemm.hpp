// The journey of a call, top to bottom.
#pragma once

#include "autotune.hpp"
#include "call_settings.hpp"
#include "checks.hpp"
#include "params.hpp"
#include "scales.hpp"
#include "transpose.hpp"

namespace deep_gemm {

inline void launch_gemm(Device& device, const LaunchPlan& plan, const GemmCall& call, const void* params,
                        size_t params_bytes, void* stream) {
    const Extent extents[] = {
        {call.a.data, call.a.bytes, "a", false},
        {call.b.data, call.b.bytes, "b", false},
        {call.scales_a.data, call.scales_a.bytes, "a's scales", false},
        {call.scales_b.data, call.scales_b.bytes, "b's scales", false},
        {call.d.data, call.d.bytes, "d", true},
        {call.c.data, call.c.bytes, "c", false},
        {call.grouped_layout, call.grouped_layout_bytes, "grouped_layout", false},
    };
    device.launch(*plan.kernel, plan.shape, params, params_bytes, stream, extents);
}

inline void launch_gemm(Device& device, const LaunchPlan& plan, const GemmCall& call, void* stream) {
    const GemmParams params = make_params(device, call, plan);
    launch_gemm(device, plan, call, &params, sizeof(params), stream);
}

/// Returns false where the product is empty (K = 0), so that D is C or zero: the caller writes it.
inline bool run_gemm(GemmCall call) {
    Problem& problem = call.problem;
    if (problem.m == 0 || problem.n == 0 || problem.num_groups == 0) return true;
    if (problem.k == 0) return false;
    Device& device = Device::get(call.device);
    CallSettings::of(call.device).apply(problem, device.facts());
    LaunchPlan plan = PlanCache::of(device).get(device, problem);
    void* stream = current_stream(call.device);
    Workspace copy_of_a, copy_of_b;
    call.a = require_k_major(device, call.a, stream, copy_of_a);
    call.b = require_k_major(device, call.b, stream, copy_of_b);
    const ScaleWorkspace workspace_a = require_layout(device, call.scales_a, stream);
    const ScaleWorkspace workspace_b = require_layout(device, call.scales_b, stream);
    const auto launch = [&](const GemmCall& any_call, const LaunchPlan& any_plan) {
        launch_gemm(device, any_plan, any_call, stream);
    };
    if (plan.untuned) [[unlikely]]
        plan = tune(device, call, plan, stream, launch);
    launch(call, plan);
    return true;
}

}  // namespace deep_gemm
