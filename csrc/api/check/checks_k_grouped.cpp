#include "checks_k_grouped.hpp"

#include <algorithm>

#include "../call/call_settings.hpp"
#include "../call/dtypes.hpp"
#include "../call/overlap.hpp"
#include "checks_grouped.hpp"
#include "checks_lines.hpp"

namespace deep_gemm {

int64_t entries_of(std::span<const int64_t> ks, int64_t entry_k) {
    int64_t count = 0;
    for (const int64_t k : ks) count += (k + entry_k - 1) / entry_k;
    return count;
}

namespace {

/// Elements of K that the groups take in the operands. In the psum layout each starts at a multiple of the alignment.
int64_t k_extent_of(std::span<const int64_t> ks, int64_t psum_alignment) {
    int64_t end = 0;
    for (const int64_t k : ks) end = (psum_alignment > 0 ? round_up(end, psum_alignment) : end) + k;
    return end;
}

/// Each a multiple of `step`.
void check_ks(std::span<const int64_t> ks, int64_t groups, const TensorView& d, int64_t step) {
    require(static_cast<int64_t>(ks.size()) == groups, "ks_cpu must have one K for each of d's ", groups,
            " groups, got ", ks.size(), " (d is ", describe_shape(d), ")");
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

/// Scales of an operand along K, or words of them.
struct Entries {
    int64_t k = kScaleGroupK;  // elements of K for each
    int64_t count = 0;         // of all groups together, ceil for each group
};

/// By one entry for each row.
Scales check_k_grouped_scales(const TensorView& sf, const char* name, const char* scales_name, const GemmCall& call,
                              const Scaling& scaling, int64_t rows, const Entries& entries) {
    return check_scales(sf, {name, scales_name, 1, rows, entries.count * entries.k, scaling, 1}, call,
                        last_axes(false, /*transposed=*/blocks_come_first(sf, rows)));
}

/// As many as the groups' sizes say. `rounded`: those may be rounded up to so much, or be left to the device. As many
/// as there are then, as far as `ks` allow.
Entries given_entries(const KGroupedCall& k, const OptionalTensor& sf, const char* name, const char* shape,
                      const Scaling& scaling, int64_t rows, int64_t rounded) {
    if (!sf) return {.k = kScaleGroupK, .count = entries_of(k.ks, kScaleGroupK)};
    Entries entries{.k = entry_k(element_of(sf->dtype()), scaling)};
    entries.count = entries_of(k.ks, entries.k);
    if (rounded == 0) return entries;
    require(sf->ndim() == 2, name, " must be ", shape, ", got shape ", describe_shape(*sf));
    const int64_t given = sf->size(blocks_come_first(*sf, rows) ? 0 : 1);
    if (k.ks.empty()) {
        entries.count = given;
        return entries;
    }
    int64_t least = 0;
    for (const int64_t group_k : k.ks)
        least += (std::max<int64_t>(group_k - rounded + 1, 0) + entries.k - 1) / entries.k;
    entries.count = std::clamp(given, least, entries.count);
    return entries;
}

/// The most blocks of 128 that groups with so many entries can have.
int64_t most_blocks(const Entries& entries, int64_t groups) {
    if (entries.k >= kScaleGroupK) return entries.count * (entries.k / kScaleGroupK);
    const int64_t per_block = kScaleGroupK / entries.k;
    return (entries.count + groups * (per_block - 1)) / per_block;
}

/// Where the CPU can read what the kernels will, counts that lead elsewhere than the host's are refused. (On a GPU they
/// are cut at the operands' extents: tile/k_groups.cuh.) In the psum layout `ks` may be rounded up to the alignment.
void check_device_counts(const KGroupedCall& k) {
    const KGroupLayout& groups = k.call.k_groups;
    const int64_t alignment = groups.psum_alignment;
    if (!k.call.device.holds_values()) return;
    const auto entries_used = [](const Scales& s, int64_t count) {
        const int64_t each = entry_k(s.element, s.scaling);
        return (count + each - 1) / each;
    };
    int64_t end = 0, used_of_a = 0, used_of_b = 0;
    const Scales &a = k.call.scales_a, &b = k.call.scales_b;
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
        end = value;
        if (a.data != nullptr) used_of_a += entries_used(a, count), used_of_b += entries_used(b, count);
    }
    const auto require_enough = [](const Scales& s, const char* name, int64_t used) {
        require(used <= s.k_scales, name, "'s scales must have one row for each ", entry_k(s.element, s.scaling),
                " of a group's K, ", used, " as grouped_layout says, got ", s.k_scales);
    };
    require_enough(a, "a", used_of_a), require_enough(b, "b", used_of_b);
}

/// What both layouts share. Returns with num_groups, n, m, d and c set.
KGroupedCall start_k_grouped(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                             const TensorView& grouped_layout, const OptionalTensor& c,
                             const KGroupedOptions& options) {
    KGroupedCall k{.call = start_call(a, b, Grouping::k_contiguous), .ks = {options.ks.begin(), options.ks.end()}};
    const bool psum = options.psum;
    GemmCall& call = k.call;
    check_output(call, d, c, last_axes(true), "[G, M, N]");
    require_disjoint_groups(call.d, "d");
    Problem& p = call.problem;
    const Granularity granularity{.rows = 1, .k = options.gran_k};
    if (a.scales) set_scalings(p, {.a = granularity, .b = granularity});
    // Kernels count FP32 scales by K blocks, which begin anew with each group; words are counted by groups.
    require(p.a.scaling.type != Element::fp32 || options.gran_k == kScaleGroupK,
            "scales of K groups must be one float32 per row and ", kScaleGroupK, " of K here, the recipe says ",
            options.gran_k);
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

/// `k_end`: K of the operands. `rounded`: see given_entries.
void finish_k_grouped(KGroupedCall& k, const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                      int64_t k_end, int64_t rounded, int64_t layout) {
    GemmCall& call = k.call;
    Problem& p = call.problem;
    const bool scaled = a.scales.has_value();
    const Entries of_a = given_entries(k, a.scales, "a's scales", "[K blocks, M]", p.a.scaling, p.m, rounded),
                  of_b = given_entries(k, b.scales, "b's scales", "[K blocks, N]", p.b.scaling, p.n, rounded);
    k.k_blocks = k.ks.empty() ? most_blocks(of_a, p.num_groups)
                              : std::min(most_blocks(of_a, p.num_groups), entries_of(k.ks, kScaleGroupK));
    call.k_groups.k_end = to_int32(k_end, "K of all groups");
    call.k_groups.block_end = scaled ? to_int32(k.k_blocks, "the number of K blocks") : INT32_MAX;
    // Equal kernels for sums that differ a little from step to step.
    p.k = round_up_coarsely(to_int32(k.k_blocks * kScaleGroupK, "the sum of K"));
    if (k.k_blocks == 0) p.k = 0;
    p.compiled = compiled_shape(p, layout & ~kCompileK);
    if (scaled && p.m != 0 && p.n != 0 && p.num_groups != 0 && p.k != 0) {
        call.scales_a = check_k_grouped_scales(*a.scales, "a", "a's scales", call, p.a.scaling, p.m, of_a);
        call.scales_b = check_k_grouped_scales(*b.scales, "b", "b's scales", call, p.b.scaling, p.n,
                                               of_b.k == of_a.k ? of_a : of_b);
        for (Scales* s : {&call.scales_a, &call.scales_b}) s->scales_of_row = std::min(s->scales_of_row, k.k_blocks);
    }
    check_device_counts(k);
    require_operands_apart(d, a, b);
}

}  // namespace

KGroupedCall check_k_grouped_tn(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                                const TensorView& grouped_layout, const OptionalTensor& c,
                                const KGroupedOptions& options) {
    const std::span<const int64_t> ks = options.ks;
    const bool psum = options.psum;
    KGroupedCall k = start_k_grouped(a, b, d, grouped_layout, c, options);
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
            require(call.a.cols >= extent, "a must have at least ", extent, " rows of K in the psum layout, got ",
                    call.a.cols);
        else
            require(call.a.cols == extent, "a must be [sum_k, M] with sum_k=", extent, " as ks_cpu adds up, got shape ",
                    describe_shape(a.data));
    }
    finish_k_grouped(k, a, b, d, call.a.cols, call.a.cols > 0 ? call.k_groups.psum_alignment : 0, options.layout);
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
    // Read as they lie, each group through tensor maps of its own, which know its size on the host only. In the psum
    // layout that may be rounded up, and what is between groups may be anything where there are scales.
    if (pair_of(p).mn_major == MnMajor::as_it_lies && !(psum && scaled)) {
        check_layout(call.a, p.a, MnMajor::as_it_lies, "a", "M");
        check_layout(call.b, p.b, MnMajor::as_it_lies, "b", "N");
        k.group_by_group = true;
        p.group_maps = 1, p.a.major = p.b.major = Major::mn;
        p.row_alignment_a = row_alignment(call.a, p.a), p.row_alignment_b = row_alignment(call.b, p.b);
    }
    return k;
}

KGroupedCall check_k_grouped_nt(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                                const TensorView& grouped_layout, const OptionalTensor& c,
                                const KGroupedOptions& options) {
    const std::span<const int64_t> ks = options.ks;
    KGroupedCall k = start_k_grouped(a, b, d, grouped_layout, c, options);
    k.group_by_group = true;
    GemmCall& call = k.call;
    Problem& p = call.problem;
    p.group_maps = 1;
    const auto each = in_rows(p.a.element) ? int64_t{2} : int64_t{1};  // of K in an element of the tensor
    check_ks(ks, p.num_groups, d, elements_in(p.a.element, kTmaAlignment));
    const int64_t sum_k = k_extent_of(ks, 0);
    require(
        k_extent_of(ks, call.k_groups.psum_alignment) == sum_k,
        "the psum layout leaves gaps between groups here, which operands flattened group by group do not have: use ",
        each == 1 ? "k_grouped_fp8_gemm_tn_contiguous, or " : "", "an alignment that divides every K");
    const auto flattened = [&](const TensorView& tensor, const char* name, const char* mn, int64_t rows) {
        require(tensor.ndim() == 1 && tensor.size(0) * each == rows * sum_k, name, " must be the groups' matrices [",
                mn, each == 1 ? ", k_g]" : ", k_g / 2]", " flattened one after the other, ", rows, " * ", sum_k / each,
                " elements in one dimension, got shape ", describe_shape(tensor));
        require(tensor.size(0) <= 1 || tensor.stride(0) == 1, name, " must be contiguous, got stride ",
                tensor.stride(0));
        return Matrix{.data = tensor.data(), .rows = rows, .bytes = extent_bytes(tensor)};
    };
    call.a = flattened(a.data, "a", "M", p.m);
    call.b = flattened(b.data, "b", "N", p.n);
    uint64_t strides = 0;
    for (const int64_t group_k : ks) strides |= static_cast<uint64_t>(group_k);
    p.row_alignment_a = p.row_alignment_b = alignment_of(bytes_of(p.a.element, strides));
    finish_k_grouped(k, a, b, d, sum_k, 0, options.layout);
    return k;
}

}  // namespace deep_gemm
