// What every architecture's shared-memory plan has: addresses of a stage's parts, and of the table of groups.
#pragma once

#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/group_table.cuh>
#include <deep_gemm/tile/k_groups.cuh>

namespace deep_gemm {

/// `plan` is the architecture's SmemPlan.
template <Constant<GemmConfig> c, auto plan, int32_t kAlignment>
struct StageSmem {
    static constexpr auto kPlan = plan;
    uint32_t base;

    DG_DEVICE explicit StageSmem(const void* dynamic)
        : base((ptx::shared_address(dynamic) + kAlignment - 1) & ~(kAlignment - 1)) {}

    DG_DEVICE uint32_t rows(int stage) const { return base + kPlan.rows + stage * kPlan.rows_bytes; }
    DG_DEVICE uint32_t cols(int stage) const { return base + kPlan.cols + stage * kPlan.cols_bytes; }
    DG_DEVICE uint32_t row_scales(int stage) const { return base + kPlan.row_scales + stage * kPlan.row_scale_bytes; }
    DG_DEVICE uint32_t col_scales(int stage) const { return base + kPlan.col_scales + stage * kPlan.col_scale_bytes; }
    DG_DEVICE uint32_t zeros(int stage) const { return base + kPlan.zeros + stage * kPlan.zero_bytes; }

    DG_DEVICE auto groups() const {
        if constexpr (c.grouping == Grouping::k_contiguous)
            return KGroupTable<c>{base + kPlan.groups};
        else
            return GroupTable<c>{base + kPlan.groups};
    }
};

}  // namespace deep_gemm
