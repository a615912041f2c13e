// Hopper: what a config cannot be.
#pragma once

#include <deep_gemm/plan.cuh>

namespace deep_gemm::sm90 {

/// Whether loads of C beside both accumulators, or what FP32 stores, group tables, pairs and shared tiles keep, take
/// more registers than a thread has (ptxas -v, CUDA 13.0, scales per row). Where twice 64 rows a warpgroup meet scales
/// per row of more than 64 columns, some do and the others move descriptors. Three warpgroups of K groups spill where D
/// is BF16 without C.
inline bool spills(const GemmConfig& c) {
    const bool tall = c.warpgroup_rows() > kWgmmaRows, wide = tall && c.tile.cols >= 128;
    if (!c.scaled())
        return c.warpgroup_rows() / kWgmmaRows * c.tile.cols / 2 > 128 || (tall && c.shares_last && c.tile.cols == 112);
    if (tall && c.tile.cols > 64 && c.col_scales() == ScaleKind::per_row) return true;
    if (wide && (c.output == ElementType::fp32 || !is_staged(c.store) || c.grouping == Grouping::m_psum)) return true;
    if (c.grouping == Grouping::m_psum && c.tile.cols >= 160) return true;
    if (c.grouping == Grouping::k_contiguous && c.output == ElementType::bf16 && c.row_warpgroups() == 3) return true;
    const int32_t accumulators = (c.warpgroup_rows() / kWgmmaRows + 1) * c.tile.cols / 2;
    return c.add_c && c.store == StoreKind::direct && c.math_warpgroups > 1 && accumulators >= math_registers(c) - 64;
}

}  // namespace deep_gemm::sm90
