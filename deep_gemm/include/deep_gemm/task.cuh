// What a kernel multiplies, on any architecture and however it is cut up.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

/// How rows belong to experts.
enum class Grouping : int32_t {
    dense,
    m_contiguous,  // one index per row of A: its expert, or -1 on padding
    m_psum,        // one value per expert: where its rows end; the next expert starts aligned up
    masked,        // A is [groups, max_m, K], with a device-side count of valid rows for each group
    k_contiguous,  // groups share M and N and split K: D is [groups, M, N]
    batched,       // a product for each group, of matrices of the same extents: D is [groups, M, N]
    batch_sum,     // the sum of such products: groups are parts of its K, which runs through all matrices
};

/// Whether the host knows all extents of a group, K included.
constexpr bool has_fixed_extents(Grouping grouping) {
    return grouping == Grouping::dense || grouping == Grouping::batched;
}

/// Whether groups share M and N and have a part of K each.
constexpr bool divides_k(Grouping grouping) {
    return grouping == Grouping::k_contiguous || grouping == Grouping::batch_sum;
}

/// Whether each group has a D of its own, all of it written.
constexpr bool has_equal_groups(Grouping grouping) { return divides_k(grouping) || grouping == Grouping::batched; }

constexpr bool is_m_grouped(Grouping grouping) {
    return grouping == Grouping::m_contiguous || grouping == Grouping::m_psum || grouping == Grouping::masked;
}

/// Problem extents known when the kernel is compiled; 0 means that GemmParams carries it.
struct CompiledShape {
    int32_t m = 0, n = 0, k = 0;
    constexpr bool operator==(const CompiledShape&) const = default;
};

/// Sums of integers are exact.
constexpr Element sum_of(Element operand) {
    return facts(operand).kind == NumberKind::integer ? Element::s32 : Element::fp32;
}

/// D[M, N] = A[M, K] B[N, K].T, scales applied.
struct GemmTask {
    Grouping grouping = Grouping::dense;
    Operand a = {Element::e4m3, Major::k, kRowScales};
    Operand b = {Element::e4m3, Major::k, kBlockScales};
    Element output = Element::bf16;
    CompiledShape shape = {};

    constexpr bool operator==(const GemmTask&) const = default;
    /// Whether products of K blocks are scaled before they are added up.
    constexpr bool scaled() const { return scales_blocks(a.scaling) || scales_blocks(b.scaling); }
    /// What the tensor cores add products up in; and what the sums over K are, where those of K blocks are scaled
    /// first.
    constexpr Element block_sum() const { return sum_of(a.element); }
    constexpr Element sum() const { return scaled() ? Element::fp32 : block_sum(); }
    static constexpr bool scales_blocks(const Scaling& s) {
        return (s.per_row() && !s.in_conversion()) || s.per_block();
    }
    constexpr bool has_block_scales() const { return a.scaling.per_block() || b.scaling.per_block(); }
};

constexpr bool multiplies(const GemmTask& task, Element a, Element b) {
    return task.a.element == a && task.b.element == b;
}

}  // namespace deep_gemm
