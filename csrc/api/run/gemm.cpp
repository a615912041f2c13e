#include "gemm.hpp"

#include "../call/call_settings.hpp"
#include "../call/lender.hpp"
#include "../check/checks_quantised.hpp"
#include "../check/layout_values.hpp"
#include "../check/scale_values.hpp"
#include "../prepare/operand_copies.hpp"
#include "../prepare/pack_weights.hpp"
#include "../prepare/row_sums.hpp"
#include "../prepare/scales.hpp"
#include "../prepare/unpack_int4.hpp"
#include "../prepare/unpack_weights.hpp"
#include "../prepare/widen.hpp"
#include "autotune.hpp"
#include "k_grouped.hpp"
#include "params.hpp"

namespace deep_gemm {
namespace {

/// Where a call runs, and with which plan.
struct Planned {
    Device& device;
    void* stream;
    const LaunchPlan& plan;
};

Planned plan_call(GemmCall& call, uint64_t generation) {
    Device& device = *call.runs_on;
    CallSettings::of(call.device).apply(call.problem, device.facts());
    const LaunchPlan& plan = PlanCache::of(device).get(device, call.problem, generation);
    return {device, current_stream(call.device), plan};
}

/// Copies of what the kernel cannot read where it lies; of scales one in each order that some plan wants, blocks last.
struct Copies {
    Workspace a = {}, converted_a = {}, b = {}, packed_b = {}, converted_b = {}, sums_b = {}, scales_a[2] = {},
              scales_b[2] = {};
    bool none() const {
        return !a && !converted_a && !b && !packed_b && !converted_b && !sums_b && !scales_a[false] &&
               !scales_a[true] && !scales_b[false] && !scales_b[true];
    }
};

void copy_scales(const Planned& planned, const LaunchPlan& plan, GemmCall& call, Copies& copies) {
    const bool a_in_blocks = plan.choice.copies.a_in_blocks, b_in_blocks = plan.choice.copies.b_in_blocks;
    require_layout(planned.device, call.scales_a, a_in_blocks, planned.stream, copies.scales_a[a_in_blocks]);
    require_layout(planned.device, call.scales_b, b_in_blocks, planned.stream, copies.scales_b[b_in_blocks]);
}

void preconvert_operands(const Planned& planned, Preconvert preconvert, GemmCall& call, Copies& copies) {
    if (preconvert == Preconvert::a) call.a = widen_a(planned.device, call, planned.stream, copies.converted_a);
    if (preconvert == Preconvert::b) unpack_b(planned.device, call, planned.stream, copies.converted_b);
}

/// `launch` puts a call on the stream with a plan: this call, and before it others that measure plans for it.
template <typename Launch>
void tune_and_launch(const Planned& planned, const GemmCall& call, const Launch& launch) {
    const bool counts = call.clamp.count != nullptr;  // what each launch adds to
    if (!planned.plan.untuned || counts) [[likely]]
        return launch(call, planned.plan);
    launch(call, tune(planned.device, call, planned.plan, planned.stream, launch));
}

}  // namespace

bool run_checked_gemm(GemmCall&& call, const CallKey* key, uint64_t generation) {
    check_counts(call);
    const Problem& problem = call.problem;
    require_type(call.clamp.count == nullptr || problem.rounding == Rounding::clamped,
                 "d must be a tensor, or a pair (tensor, scales)");
    check_lone_words(call);
    if (problem.m == 0 || problem.n == 0) return true;
    if (problem.num_groups == 0) return problem.grouping != Grouping::m_contiguous;
    require(!problem.has_steps() || !exceeds_exact_k(problem), "K must be at most ", most_exact_k(problem),
            " where d has scales, or there is an epilogue, got ", problem.k);
    if (problem.k == 0 || exceeds_exact_k(problem)) return false;
    check_scale_values(call);
    const Planned planned = plan_call(call, generation);
    Device& device = planned.device;
    Copies copies;
    require_packed(device, call, planned.stream, copies.packed_b);
    call.a = problem.int4_a
                 ? unpack_int4(device, call.a, planned.plan.choice.config.a.element, planned.stream, copies.a)
                 : require_readable(device, call.a, problem.a, problem.b.element, planned.stream, copies.a);
    call.b = require_readable(device, call.b, problem.b, problem.a.element, planned.stream, copies.b);
    require_row_sums(device, call, planned.stream, copies.sums_b);
    CachedCall ready;
    tune_and_launch(planned, call, [&](GemmCall any_call, const LaunchPlan& plan) {
        // Each time, since tuning compares with plans that need none.
        preconvert_operands(planned, plan.choice.tiling.preconvert, any_call, copies);
        copy_scales(planned, plan, any_call, copies);
        ready.device = &device, ready.kernel = plan.kernel, ready.shape = may_start_early(plan.shape, device);
        ready.params_bytes = fill_all_params(ready.params, device, any_call, plan);
        ready.extents = extents_of(any_call);
        ready.launch();
    });
    // Copies belong to this call only, and what fills them must be launched again. A call whose plan may still be
    // tuned, or whose counts are read, must come here again.
    if (key != nullptr && copies.none() && !call.device.recorded && !planned.plan.untuned && !reads_counts(call))
        CallCache::of_thread().remember(*key, generation, ready);
    return true;
}

bool run_k_grouped(KGroupedCall&& k) {
    GemmCall& call = k.call;
    const Problem& problem = call.problem;
    if (problem.m == 0 || problem.n == 0 || problem.num_groups == 0) return true;
    if (problem.k == 0) return false;
    check_scale_values(call);
    const Planned planned = plan_call(call, Generation::now());
    Copies copies;
    copy_scales(planned.device, k, planned.stream, copies.scales_a[false], copies.scales_b[false]);
    require_readable(planned.device, k, planned.stream, copies.a, copies.b);
    tune_and_launch(planned, call, [&](const GemmCall& any_call, const LaunchPlan& plan) {
        if (k.group_by_group) return launch_group_by_group(planned.device, plan, any_call, k.ks, planned.stream);
        GemmParamsWithSteps params;
        const size_t bytes = fill_all_params(params, planned.device, any_call, plan);
        planned.device.launch(*plan.kernel, may_start_early(plan.shape, planned.device), &params, bytes, planned.stream,
                              extents_of(any_call));
    });
    return true;
}

}  // namespace deep_gemm
