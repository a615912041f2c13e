// Whose turn it is to add to D, where CTAs of a cluster share a last tile (GemmConfig::shares_last).
//
// Each has the sum over its part of K, and the L2 adds them to D one by one. Sums of three FP32 numbers depend on the
// order, and equal inputs shall give equal bits: the next CTA begins when all of this one's additions are over.
#pragma once

#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/tile/cluster_position.cuh>
#include <deep_gemm/tile/scheduler.cuh>
#include <deep_gemm/tile/smem.cuh>

namespace deep_gemm {

/// One for each thread that issues additions; which are so many in every CTA.
template <GemmConfig c>
class AddingTurn {
public:
    DG_DEVICE explicit AddingTurn(const Smem<c>& smem) : barrier_(smem.parts_barrier(0)) {}

    /// Before the additions of a tile.
    DG_DEVICE void wait(const Tile& tile) {
        if constexpr (c.shares_last) {
            if (!tile.shared) return;
            shared_ = true;
            if (ClusterPosition<c>().k == 0) return;
            ptx::barrier_wait_cluster(barrier_, 0);
            ptx::fence_for_async_proxy_global();
        }
    }

    /// When all that this thread has issued is over; a shared tile is the last.
    DG_DEVICE void pass() const {
        if constexpr (c.shares_last) {
            const ClusterPosition<c> position;
            if (shared_ && position.k + 1 < c.cluster.k)
                ptx::barrier_arrive_release(barrier_, position.rank(position.row, position.col, position.k + 1));
        }
    }

private:
    static_assert(!c.shares_last || (c.store == StoreKind::tma_add && c.grouping == Grouping::dense &&
                                     c.k_warpgroups == 1 && !c.multicasts()));
    uint32_t barrier_;
    bool shared_ = false;
};

}  // namespace deep_gemm
