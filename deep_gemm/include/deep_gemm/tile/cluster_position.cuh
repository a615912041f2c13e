// Which CTA of its cluster this one is, and with whom it shares operands.
#pragma once

#include <deep_gemm/config.cuh>
#include <deep_gemm/ptx/cluster.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct ClusterPosition {
    int32_t row = 0, col = 0, k = 0;

    DG_DEVICE ClusterPosition() {
        if constexpr (c.cluster.size() > 1) {
            const int32_t rank = ptx::cluster_cta_rank();
            row = rank % c.cluster.rows;
            col = rank / c.cluster.rows % c.cluster.cols;
            k = rank / (c.cluster.rows * c.cluster.cols);
        }
    }

    static DG_DEVICE int32_t rank(int32_t row, int32_t col, int32_t k) {
        return row + c.cluster.rows * (col + c.cluster.cols * k);
    }

    /// CTAs with the same row block read the same rows operand.
    DG_DEVICE uint16_t rows_mask() const {
        uint32_t mask = 0;
        for (int32_t i = 0; i < c.cluster.cols; ++i) mask |= 1u << rank(row, i, k);
        return static_cast<uint16_t>(mask);
    }

    DG_DEVICE uint16_t cols_mask() const {
        uint32_t mask = 0;
        for (int32_t i = 0; i < c.cluster.rows; ++i) mask |= 1u << rank(i, col, k);
        return static_cast<uint16_t>(mask);
    }

    /// CTAs whose copies land in this CTA's shared memory too, this one included.
    static constexpr int32_t kSources = c.cluster.rows + c.cluster.cols - 1;

    DG_DEVICE int32_t source_rank(int32_t i) const {
        if (i < c.cluster.cols) return rank(row, i, k);
        const int32_t other = i - c.cluster.cols;
        return rank(other + (other >= row), col, k);
    }
};

}  // namespace deep_gemm
