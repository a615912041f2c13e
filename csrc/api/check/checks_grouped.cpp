#include "checks_grouped.hpp"

#include <algorithm>

#include "../call/call_settings.hpp"
#include "../call/overlap.hpp"

namespace deep_gemm {
namespace {

/// What both kinds share once shapes are known. Leaves the operands out where the product is empty.
void check_grouped_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b,
                            const Granularities& given, int64_t layout) {
    Problem& p = call.problem;
    require_disjoint_groups(call.d, "d");
    if (p.m == 0 || p.n == 0 || p.k == 0 || p.num_groups == 0) return;
    check_operands(call, a, b, given, operand_layout(layout));
    require_gate_is_served(p);
    require(!exceeds_exact_k(p), "K must be at most ", most_exact_k(p), " where all of it shares its scales, got ",
            p.k);
    p.compiled = compiled_shape(p, layout);
}

}  // namespace

void check_grouped_layout(GemmCall& call, const TensorView& layout, const char* name, int64_t size, const char* shape) {
    require_type(is_int32(layout.dtype()), name, " must be int32, got ", describe(layout.dtype()));
    require_device(layout, name, call.device, "a");
    require(layout.ndim() == 1 && layout.size(0) == size, name, " must be ", shape, " = [", size, "], got shape ",
            describe_shape(layout));
    require(size <= 1 || layout.stride(0) == 1, name, " must be contiguous, got stride ", layout.stride(0));
    call.grouped_layout = reinterpret_cast<const int32_t*>(layout.data());
    require(reinterpret_cast<uintptr_t>(call.grouped_layout) % sizeof(int32_t) == 0, name,
            " must be aligned to 4 bytes");
    call.grouped_layout_bytes = extent_bytes(layout);
}

void require_disjoint_groups(const Matrix& m, const char* name) {
    if (m.groups <= 1 || m.rows == 0 || m.cols == 0) return;
    const bool group_by_group = m.group_stride >= (m.rows - 1) * m.row_stride + m.cols;
    const bool row_by_row = m.row_stride >= (m.groups - 1) * m.group_stride + m.cols && m.group_stride >= m.cols;
    require(group_by_group || row_by_row, name, "'s groups overlap: group stride ", m.group_stride, ", row stride ",
            m.row_stride);
}

GemmCall check_contiguous(const OperandArgument& a, const OperandArgument& b, const OutputArgument& d,
                          const TensorView& grouped_layout, const Granularities& given, int64_t layout,
                          const ContiguousOptions& options, const GateRecord& gate) {
    const OperandLayout lying = operand_layout(layout);
    GemmCall call = start_call(a, b, options.psum ? Grouping::m_psum : Grouping::m_contiguous, lying.fp32_scales);
    const bool b_transposed = lying.b_transposed;
    call.a = matrix_of_a(a, false, "[M, K]");
    call.b = matrix_of(b, call.problem.b.element, true, b_transposed ? "[G, K, N]" : "[G, N, K]", b_transposed);
    const int64_t k = k_of(call.a, a);
    require(call.b.cols == k, b.name, " has K=", call.b.cols, " but a has K=", k);
    Problem& p = call.problem;
    p.m = to_int32(call.a.rows, "M"), p.n = to_int32(call.b.rows, "N"), p.k = to_int32(k, "K");
    p.num_groups = to_int32(call.b.groups, "the number of experts");
    p.m_alignment = CallSettings::m_alignment().load(std::memory_order_relaxed);
    call.zero_padding = options.zero_padding || !options.psum;  // callers of the layout of indices count on zeros
    check_gate(call, gate);
    check_output(call, d, {}, last_axes(false), "[M, N]");
    const int32_t columns = p.gate.columns(p.n);
    require(call.d.rows == p.m && call.d.cols == columns, "d must be [M, ", columns_name(p), "] = [", p.m, ", ",
            columns, "], got shape ", describe_shape(d.data));
    if (options.psum) {
        check_grouped_layout(call, grouped_layout, "grouped_layout", p.num_groups, "[experts] in the psum layout");
        require(options.expected_m >= 0, "expected_m_for_psum_layout must not be negative, got ", options.expected_m);
        p.expected_m = coarse_hint(p, options.expected_m);
    } else {
        check_grouped_layout(call, grouped_layout, "grouped_layout", p.m, "[M]");
    }
    check_grouped_operands(call, a, b, given, layout);
    require_operands_apart(d, a, b);
    require_apart(d.data, grouped_layout, "grouped_layout");
    if (d.scales) require_apart(*d.scales, grouped_layout, "grouped_layout");
    return call;
}

GemmCall check_masked(const OperandArgument& a, const OperandArgument& b, const OutputArgument& d,
                      const TensorView& masked_m, int64_t expected_m, const Granularities& given, int64_t layout,
                      const GateRecord& gate) {
    GemmCall call = start_call(a, b, Grouping::masked, operand_layout(layout).fp32_scales);
    call.a = matrix_of_a(a, true, "[G, max_m, K]");
    call.b = matrix_of(b, call.problem.b.element, true, "[G, N, K]");
    const int64_t k = k_of(call.a, a);
    require(call.b.cols == k, b.name, " has K=", call.b.cols, " but a has K=", k);
    require(call.b.groups == call.a.groups, b.name, " has ", call.b.groups, " experts but a has ", call.a.groups);
    Problem& p = call.problem;
    p.m = to_int32(call.a.rows, "max_m"), p.n = to_int32(call.b.rows, "N"), p.k = to_int32(k, "K");
    p.num_groups = to_int32(call.a.groups, "the number of experts");
    check_gate(call, gate);
    check_output(call, d, {}, last_axes(true), "[G, max_m, N]");
    const int32_t columns = p.gate.columns(p.n);
    require(call.d.groups == p.num_groups && call.d.rows == p.m && call.d.cols == columns, "d must be [G, max_m, ",
            columns_name(p), "] = [", p.num_groups, ", ", p.m, ", ", columns, "], got shape ", describe_shape(d.data));
    check_grouped_layout(call, masked_m, "masked_m", p.num_groups, "[experts]");
    require(expected_m >= 0, "expected_m must not be negative, got ", expected_m);
    p.expected_m = coarse_hint(p, std::max<int64_t>(expected_m, 1));
    check_grouped_operands(call, a, b, given, layout);
    require_operands_apart(d, a, b);
    require_apart(d.data, masked_m, "masked_m");
    if (d.scales) require_apart(*d.scales, masked_m, "masked_m");
    return call;
}

}  // namespace deep_gemm
