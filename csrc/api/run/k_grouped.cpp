#include "k_grouped.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "../call/call_settings.hpp"
#include "../prepare/operand_copies.hpp"
#include "../prepare/scales.hpp"
#include "../prepare/transpose.hpp"
#include "params.hpp"

namespace deep_gemm {
namespace {

/// K-major copy of a [rows, sum_k] operand that lies MN-major, each group's K starting at a multiple of 128 and filled
/// up with zeros.
Matrix align_k_groups(Device& device, const Matrix& matrix, const KGroupLayout& groups, int64_t k_blocks, void* stream,
                      Workspace& workspace) {
    const int64_t k = k_blocks * kScaleGroupK;
    Matrix copy{.rows = matrix.rows,
                .cols = k,
                .group_stride = matrix.rows * k,
                .row_stride = k,
                .bytes = static_cast<size_t>(matrix.rows * k)};
    workspace = allocate_bytes(device, matrix.rows * k);
    copy.data = workspace.data();
    launch_transpose(device, matrix, copy, k_blocks, &groups, stream);
    return copy;
}

/// Words that a packed copy of scales can have: no word is of two groups.
int64_t most_words(const KGroupedCall& k, const Scales& s) {
    if (!k.ks.empty()) return entries_of(k.ks, word_k(s.scaling));
    return (s.k_scales + k.call.k_groups.num_groups * int64_t{kScalesPerWord - 1}) / kScalesPerWord;
}

template <typename Params>
void launch_groups(Device& device, const LaunchPlan& plan, const GemmCall& call, std::span<const int64_t> ks,
                   void* stream) {
    const GemmConfig& c = plan.choice.config;
    GemmParamsWithMaps<kMaxGroupMaps, Params> params;
    fill_params(params, device, call, plan);
    if constexpr (std::is_same_v<Params, GemmParamsWithSteps>) fill_steps(params.steps, call);
    const auto map = [&](const Matrix& m, int64_t k_before, int64_t group_k, const Operand& lying, int32_t box_rows,
                         TensorMap& target) {
        const bool mn_major = lying.mn_major();
        const int64_t line = mn_major ? m.col_stride : m.rows;  // elements for each K
        const Matrix group{.data = m.data + bytes_of(lying.element, line * k_before),
                           .rows = m.rows,
                           .cols = group_k,
                           .group_stride = line * group_k,
                           .row_stride = mn_major ? 1 : group_k,
                           .col_stride = mn_major ? line : 1};
        encode(device, plan.choice.copies.plain_operands, operand_map(group, lying, plan.choice, box_rows), target);
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
            const int64_t group_k = empty ? elements_in(c.a.element, kTmaAlignment) : ks[first + i];
            if (const int64_t step = call.k_groups.psum_alignment; step > 0)
                k_before = (k_before + step - 1) / step * step;
            map(rows, empty ? 0 : k_before, group_k, c.rows_operand(), plan.choice.copies.rows_box,
                params.groups[i].rows);
            map(cols, empty ? 0 : k_before, group_k, c.cols_operand(), plan.choice.copies.cols_box,
                params.groups[i].cols);
            k_before += ks[first + i];
        }
        params.first_group = static_cast<int32_t>(first), params.num_groups = static_cast<int32_t>(count);
        device.launch(*plan.kernel, may_start_early(plan.shape, device), &params,
                      sizeof(Params) + c.group_capacity * sizeof(GroupMaps), stream, extents_of(call));
    }
}

}  // namespace

void launch_group_by_group(Device& device, const LaunchPlan& plan, const GemmCall& call, std::span<const int64_t> ks,
                           void* stream) {
    if (has_step_params(plan.choice.config)) return launch_groups<GemmParamsWithSteps>(device, plan, call, ks, stream);
    launch_groups<GemmParams>(device, plan, call, ks, stream);
}

void copy_scales(Device& device, KGroupedCall& k, void* stream, Workspace& copy_of_a, Workspace& copy_of_b) {
    const auto copy_one = [&](Scales& s, Workspace& copy) {
        if (s.scaling.any()) require_k_grouped_layout(device, s, k.call.k_groups, most_words(k, s), stream, copy);
    };
    copy_one(k.call.scales_a, copy_of_a), copy_one(k.call.scales_b, copy_of_b);
}

void require_readable(Device& device, KGroupedCall& k, void* stream, Workspace& copy_of_a, Workspace& copy_of_b) {
    const auto require_one = [&](Matrix& matrix, const Operand& wanted, Workspace& copy) {
        if (!k.group_by_group)
            matrix = align_k_groups(device, matrix, k.call.k_groups, k.k_blocks, stream, copy);
        else if (wanted.mn_major())
            matrix = require_readable(device, matrix, wanted, wanted.element, stream, copy);
        else
            require_readable_flat(device, matrix, wanted.element, stream, copy);
    };
    require_one(k.call.a, k.call.problem.a, copy_of_a);
    require_one(k.call.b, k.call.problem.b, copy_of_b);
}

}  // namespace deep_gemm
