// What a kernel computes, on any architecture and however it is cut up.
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
};

constexpr bool is_m_grouped(Grouping grouping) {
    return grouping == Grouping::m_contiguous || grouping == Grouping::m_psum || grouping == Grouping::masked;
}

/// Problem extents known when the kernel is compiled; 0 means that GemmParams carries it.
struct CompiledShape {
    int32_t m = 0, n = 0, k = 0;
    constexpr bool operator==(const CompiledShape&) const = default;
};

/// D[M, N] = C + A[M, K] B[N, K].T, scales applied.
struct GemmTask {
    Grouping grouping = Grouping::dense;
    Operand a = {Element::e4m3, Major::k, kRowScales};
    Operand b = {Element::e4m3, Major::k, kBlockScales};
    Element output = Element::bf16;
    bool add_c = false;
    CompiledShape shape = {};

    constexpr bool operator==(const GemmTask&) const = default;
    /// Whether products of K blocks are scaled before they are added up.
    constexpr bool scaled() const { return a.scaling.per_row() || a.scaling.per_block(); }
    constexpr bool has_block_scales() const { return a.scaling.per_block() || b.scaling.per_block(); }
};

constexpr bool multiplies(const GemmTask& task, Element a, Element b) {
    return task.a.element == a && task.b.element == b;
}

}  // namespace deep_gemm
