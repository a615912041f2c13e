// The journey of a K-grouped call, after its checks.
#pragma once

#include "checks_k_grouped.hpp"
#include "gemm.hpp"

namespace deep_gemm {

/// K-major copy of a [rows, sum_k] operand that lies MN-major, each group's K starting at a multiple of 128 and filled
/// up with zeros.
inline Matrix align_k_groups(Device& device, const Matrix& matrix, const KGroupLayout& groups, int64_t k_blocks,
                             void* stream, Workspace& workspace) {
    const int64_t k = k_blocks * kScaleGranularity;
    Matrix copy{.rows = matrix.rows,
                .cols = k,
                .group_stride = matrix.rows * k,
                .row_stride = k,
                .bytes = static_cast<size_t>(matrix.rows * k)};
    workspace = allocate_bytes(device, matrix.rows * k);
    copy.data = static_cast<char*>(workspace->data_ptr());
    launch_transpose(device, matrix, copy, k_blocks, &groups, stream);
    return copy;
}

/// Groups that are matrices of their own, a launch for each part of them whose tensor maps fit a kernel's argument.
inline void launch_group_by_group(Device& device, const LaunchPlan& plan, const GemmCall& call,
                                  std::span<const int64_t> ks, void* stream) {
    const GemmConfig& c = plan.choice.config;
    GemmParamsWithMaps<kMostGroupMaps> params;
    fill_params(params, device, call, plan);
    const auto map = [&](const Matrix& m, int64_t k_before, int64_t group_k, int32_t box_rows, TensorMap& target) {
        const bool mn_major = !is_k_major(m);
        const int64_t line = mn_major ? m.col_stride : m.rows;  // elements for each K
        const Matrix group{.data = m.data + line * k_before * element_bytes(c.operand),
                           .rows = m.rows,
                           .cols = group_k,
                           .group_stride = line * group_k,
                           .row_stride = mn_major ? 1 : group_k,
                           .col_stride = mn_major ? line : 1};
        encode(device, operand_map(group, plan.choice, box_rows), target);
    };
    const Matrix& rows = c.swap_ab ? call.b : call.a;
    const Matrix& cols = c.swap_ab ? call.a : call.b;
    int64_t k_before = 0;
    for (int64_t first = 0; first < static_cast<int64_t>(ks.size()); first += c.group_capacity) {
        const int64_t count = std::min<int64_t>(c.group_capacity, static_cast<int64_t>(ks.size()) - first);
        for (int64_t i = 0; i < count; ++i) {
            // A group without K has nothing to encode; nothing is read through its maps, but they are prefetched, so
            // they must be maps.
            const bool empty = ks[first + i] == 0;
            const int64_t group_k = empty ? kTmaAlignment : ks[first + i];
            if (const int64_t step = call.k_groups.psum_alignment; step > 0)
                k_before = (k_before + step - 1) / step * step;
            map(rows, empty ? 0 : k_before, group_k, c.tile.rows / c.cluster.cols, params.groups[i].rows);
            map(cols, empty ? 0 : k_before, group_k, c.tile.cols / c.cluster.rows, params.groups[i].cols);
            k_before += ks[first + i];
        }
        params.first_group = static_cast<int32_t>(first), params.num_groups = static_cast<int32_t>(count);
        device.launch(*plan.kernel, may_start_early(plan.shape, device), &params,
                      sizeof(GemmParams) + c.group_capacity * sizeof(GroupMaps), stream, extents_of(call));
    }
}

/// Returns false where no group has any K, so that D is C or zero: the caller writes it.
inline bool run_k_grouped(KGroupedCall k) {
    begin_cold_call();
    GemmCall& call = k.call;
    Problem& problem = call.problem;
    if (problem.m == 0 || problem.n == 0 || problem.num_groups == 0) return true;
    if (problem.k == 0) return false;
    const uint64_t generation = Generation::now();
    Device& device = Device::get(call.device);
    CallSettings::of(call.device).apply(problem, device.facts());
    const LaunchPlan* plan = &PlanCache::of(device).get(device, problem, generation);
    void* stream = current_stream(call.device);
    const ScaleWorkspace workspace_a = require_layout(device, call.scales_a, stream);
    const ScaleWorkspace workspace_b = require_layout(device, call.scales_b, stream);
    Workspace copy_of_a, copy_of_b;
    for (const auto& [operand, copy] : {std::pair{&call.a, &copy_of_a}, std::pair{&call.b, &copy_of_b}}) {
        if (!k.group_by_group)
            *operand = align_k_groups(device, *operand, call.k_groups, k.k_blocks, stream, *copy);
        else if (problem.operand == ElementType::bf16)
            *operand = require_readable(device, *operand, problem.operand, stream, *copy);
        else
            require_readable_flat(device, *operand, stream, *copy);
    }
    const auto launch = [&](const GemmCall& any_call, const LaunchPlan& any_plan) {
        if (k.group_by_group) return launch_group_by_group(device, any_plan, any_call, k.ks, stream);
        GemmParams params;
        fill_params(params, device, any_call, any_plan);
        device.launch(*any_plan.kernel, may_start_early(any_plan.shape, device), &params, sizeof(params), stream,
                      extents_of(any_call));
    };
    LaunchPlan tuned;
    if (plan->untuned) [[unlikely]] {
        tuned = tune(device, call, *plan, stream, launch);
        plan = &tuned;
    }
    launch(call, *plan);
    return true;
}

}  // namespace deep_gemm
