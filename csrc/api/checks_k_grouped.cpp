#include "checks_k_grouped.hpp"

#include <algorithm>

#include "call_settings.hpp"
#include "checks_grouped.hpp"
#include "overlap.hpp"

namespace deep_gemm {
namespace {

int64_t k_blocks_of(std::span<const int64_t> ks) {
    int64_t blocks = 0;
    for (const int64_t k : ks) blocks += (k + kScaleGroupK - 1) / kScaleGroupK;
    return blocks;
}

/// Elements of K that the groups take in the operands. In the psum layout each starts at a multiple of the alignment.
int64_t k_extent_of(std::span<const int64_t> ks, int64_t psum_alignment) {
    int64_t end = 0;
    for (const int64_t k : ks) end = (psum_alignment > 0 ? round_up(end, psum_alignment) : end) + k;
    return end;
}

/// Each a multiple of `step`.
void check_ks(std::span<const int64_t> ks, int64_t groups, const TensorView& d, int64_t step) {
    require(static_cast<int64_t>(ks.size()) == groups, "ks_cpu must have one K for each of d's ", groups,
            " groups, but has ", ks.size(), " (d is ", describe_shape(d), ")");
    for (size_t g = 0; g < ks.size(); ++g) {
        require(ks[g] >= 0, "ks_cpu must not be negative, but ks_cpu[", g, "] is ", ks[g]);
        require(ks[g] < (int64_t{1} << 31), "ks_cpu[", g, "] is ", ks[g], ", which does not fit 32 bits");
        require(ks[g] % step == 0, "each group's K must be a multiple of ", step, ", but ks_cpu[", g, "] is ", ks[g],
                ": pad with zeros to ", (ks[g] + step - 1) / step * step);
    }
}

/// Whether the blocks of K are the first dimension of scales [blocks, rows], and not the second one of [rows, blocks].
/// The shape says so; where it fits both ways, rows are what lies contiguous.
bool blocks_come_first(const TensorView& sf, int64_t rows) {
    if (sf.ndim() != 2 || sf.size(1) != rows) return sf.ndim() != 2 || sf.size(0) != rows;
    return sf.size(0) != rows || sf.stride(0) != 1 || sf.stride(1) == 1;
}

/// Blocks of 128 of K, ceil per group, by one scale for each row and block.
Scales check_k_grouped_scales(const TensorView& sf, const char* name, const char* operand, const GemmCall& call,
                              int64_t rows, int64_t k_blocks) {
    return check_scales(sf, name, operand, call, 1, rows, k_blocks * kScaleGroupK, kRowScales,
                        /*transposed=*/blocks_come_first(sf, rows));
}

/// Where the CPU can read what the kernels will, counts that lead elsewhere than the host's are refused. (On a GPU they
/// are cut at the operands' extents: tile/k_groups.cuh.) In the psum layout `ks` may be rounded up to the alignment.
void check_device_counts(const KGroupedCall& k) {
    const KGroupLayout& groups = k.call.k_groups;
    const int64_t alignment = groups.psum_alignment;
    if (!k.call.device.simulated) return;
    int64_t end = 0, blocks = 0;
    for (int64_t g = 0; g < groups.num_groups; ++g) {
        const int64_t value = groups.values[g];
        if (alignment == 0) {
            require(value == k.ks[g], "grouped_layout[", g, "] is ", value, " but ks_cpu[", g, "] is ", k.ks[g]);
            continue;
        }
        const int64_t count = std::max<int64_t>(value - round_up(end, alignment), 0);
        require(value >= end, "grouped_layout[", g, "] says that the group ends at ", value,
                ", but the one before it ends at ", end);
        require(value <= groups.k_end, "grouped_layout[", g, "] says that the group ends at ", value,
                ", but a has only ", groups.k_end, " rows of K");
        require(k.ks.empty() || round_up(count, alignment) == round_up(k.ks[g], alignment), "grouped_layout[", g,
                "] gives the group K=", count, " but ks_cpu[", g, "] is ", k.ks[g]);
        end = value, blocks += (count + kScaleGroupK - 1) / kScaleGroupK;
    }
    require(k.call.scales_a.data == nullptr || blocks <= k.k_blocks, "a's scales must have one row for each 128 of a ",
            "group's K, ", blocks, " as grouped_layout says, but have ", k.k_blocks);
}

/// What both layouts share. Returns with num_groups, n, m, d and c set.
KGroupedCall start_k_grouped(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                             std::span<const int64_t> ks, const TensorView& grouped_layout, const OptionalTensor& c,
                             bool psum) {
    KGroupedCall k{.call = start_call(a, b, Grouping::k_contiguous), .ks = {ks.begin(), ks.end()}};
    GemmCall& call = k.call;
    check_output(call, d, c, last_axes(true), "[G, M, N]");
    require_disjoint_groups(call.d, "d");
    Problem& p = call.problem;
    if (a.scales) p.a.scaling = p.b.scaling = kRowScales;
    p.num_groups = to_int32(call.d.groups, "the number of groups");
    p.m = to_int32(call.d.rows, "M"), p.n = to_int32(call.d.cols, "N");
    check_grouped_layout(call, grouped_layout, "grouped_layout", p.num_groups,
                         psum ? "[groups] in the psum layout" : "[groups]");
    require_apart(d, grouped_layout, "grouped_layout");
    call.k_groups = {.values = call.grouped_layout,
                     .num_groups = p.num_groups,
                     .psum_alignment = psum ? CallSettings::m_alignment().load(std::memory_order_relaxed) : 0,
                     .k_end = 0,
                     .block_end = 0};
    return k;
}

/// `k_end`: K of the operands.
void finish_k_grouped(KGroupedCall& k, const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                      int64_t k_end, int64_t layout) {
    GemmCall& call = k.call;
    Problem& p = call.problem;
    const bool scaled = a.scales.has_value();
    call.k_groups.k_end = to_int32(k_end, "K of all groups");
    call.k_groups.block_end = scaled ? to_int32(k.k_blocks, "the number of K blocks") : INT32_MAX;
    // Equal kernels for sums that differ a little from step to step.
    p.k = round_up_coarsely(to_int32(k.k_blocks * kScaleGroupK, "the sum of K"));
    if (k.k_blocks == 0) p.k = 0;
    p.compiled = compiled_shape(p, layout & ~kCompileK);
    if (scaled && p.m != 0 && p.n != 0 && p.num_groups != 0 && p.k != 0) {
        call.scales_a = check_k_grouped_scales(*a.scales, "a's scales", "a", call, p.m, k.k_blocks);
        call.scales_b = check_k_grouped_scales(*b.scales, "b's scales", "b", call, p.n, k.k_blocks);
    }
    check_device_counts(k);
    require_operands_apart(d, a, b);
}

/// In the psum layout, which alone may leave the sizes to the device: as many as a's scales have, and no other number
/// than `ks` allow, which may be rounded up to the alignment.
int64_t k_blocks_of_psum(std::span<const int64_t> ks, int64_t alignment, const TensorView& scales, int64_t m) {
    require(scales.ndim() == 2, "a's scales must be [K blocks, M], but have shape ", describe_shape(scales));
    const int64_t blocks = scales.size(blocks_come_first(scales, m) ? 0 : 1);
    if (ks.empty()) return blocks;
    int64_t least = 0;
    for (const int64_t k : ks) least += (std::max<int64_t>(k - alignment + 1, 0) + kScaleGroupK - 1) / kScaleGroupK;
    return std::clamp(blocks, least, k_blocks_of(ks));
}

}  // namespace

KGroupedCall check_k_grouped_tn(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                                std::span<const int64_t> ks, const TensorView& grouped_layout, const OptionalTensor& c,
                                int64_t layout, bool psum) {
    KGroupedCall k = start_k_grouped(a, b, d, ks, grouped_layout, c, psum);
    GemmCall& call = k.call;
    Problem& p = call.problem;
    const bool scaled = a.scales.has_value();
    require(!ks.empty() || (psum && scaled) || p.num_groups == 0,
            scaled ? "ks_cpu may be missing in the psum layout only" : "ks_cpu is missing");
    call.a = matrix_of(a.data, "a", false, "[sum_k, M]", true);
    call.b = matrix_of(b.data, "b", false, "[sum_k, N]", true);
    require(call.a.rows == p.m, "a has M=", call.a.rows, " but d has M=", p.m);
    require(call.b.rows == p.n, "b has N=", call.b.rows, " but d has N=", p.n);
    require(call.b.cols == call.a.cols, "b has sum_k=", call.b.cols, " but a has sum_k=", call.a.cols);
    if (!ks.empty()) {
        check_ks(ks, p.num_groups, d, scaled ? kTmaAlignment : 1);
        const int64_t extent = k_extent_of(ks, call.k_groups.psum_alignment);
        if (psum)
            require(call.a.cols >= extent, "a must have at least ", extent, " rows of K in the psum layout, but has ",
                    call.a.cols);
        else
            require(call.a.cols == extent, "a must be [sum_k, M] with sum_k=", extent,
                    " as ks_cpu adds up, but has shape ", describe_shape(a.data));
        k.k_blocks = k_blocks_of(ks);
    }
    if (psum && scaled && call.a.cols != 0)
        k.k_blocks = k_blocks_of_psum(ks, call.k_groups.psum_alignment, *a.scales, p.m);
    finish_k_grouped(k, a, b, d, call.a.cols, layout);
    if (p.m == 0 || p.n == 0 || p.num_groups == 0 || p.k == 0) return k;
    // A line of a single element: the copy that lines up the groups is a transposition either way.
    const auto require_mn_major = [](Matrix& m, const char* name, const char* mn) {
        if (m.rows == 1)
            m.row_stride = 1;
        else if (m.cols == 1)
            m.col_stride = m.rows;
        require(m.row_stride == 1, name, " must be [sum_k, ", mn, "] with ", mn, " contiguous, but its strides are (",
                m.col_stride, ", ", m.row_stride, ")");
        require(m.col_stride >= m.rows || m.cols == 1, name, "'s rows overlap: row stride ", m.col_stride,
                " is less than ", mn, "=", m.rows);
    };
    require_mn_major(call.a, "a", "M");
    require_mn_major(call.b, "b", "N");
    if (!scaled) {  // read as they lie, each group through tensor maps of its own
        check_layout(call.a, p.a, MnMajor::as_it_lies, "a", "M");
        check_layout(call.b, p.b, MnMajor::as_it_lies, "b", "N");
        k.group_by_group = true;
        p.group_maps = 1, p.a.major = p.b.major = Major::mn;
        p.row_alignment_a = row_alignment(call.a, p.a), p.row_alignment_b = row_alignment(call.b, p.b);
    }
    return k;
}

KGroupedCall check_k_grouped_nt(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                                std::span<const int64_t> ks, const TensorView& grouped_layout, const OptionalTensor& c,
                                int64_t layout, bool psum) {
    KGroupedCall k = start_k_grouped(a, b, d, ks, grouped_layout, c, psum);
    k.group_by_group = true;
    GemmCall& call = k.call;
    Problem& p = call.problem;
    p.group_maps = 1;
    check_ks(ks, p.num_groups, d, kTmaAlignment);
    const int64_t sum_k = k_extent_of(ks, 0);
    require(k_extent_of(ks, call.k_groups.psum_alignment) == sum_k,
            "the psum layout leaves gaps between groups here, which operands flattened group by group do not have: "
            "use k_grouped_fp8_gemm_tn_contiguous, or an alignment that divides every K");
    const auto flattened = [&](const TensorView& tensor, const char* name, const char* mn, int64_t rows) {
        require(tensor.ndim() == 1 && tensor.size(0) == rows * sum_k, name, " must be the groups' matrices [", mn,
                ", k_g] flattened one after the other, ", rows, " * ", sum_k,
                " elements in one dimension, but has shape ", describe_shape(tensor));
        require(tensor.size(0) <= 1 || tensor.stride(0) == 1, name, " must be contiguous, but its stride is ",
                tensor.stride(0));
        return Matrix{.data = tensor.data(), .rows = rows, .bytes = extent_bytes(tensor)};
    };
    call.a = flattened(a.data, "a", "M", p.m);
    call.b = flattened(b.data, "b", "N", p.n);
    k.k_blocks = k_blocks_of(ks);
    uint64_t strides = 0;
    for (const int64_t group_k : ks) strides |= static_cast<uint64_t>(group_k);
    p.row_alignment_a = p.row_alignment_b = alignment_of(strides);
    finish_k_grouped(k, a, b, d, sum_k, layout);
    return k;
}

}  // namespace deep_gemm
