// Adding up the partial sums of warpgroups and CTAs that split K, through (distributed) shared memory and in a fixed
// order.
//
// The tile's rows are divided among warps, 16 each, and each 16 belong to one of the parts. Every warp of another part
// sends its accumulators, in register order, to the owner's CTA, where a barrier counts them. The owning warp waits for
// all, adds them up in the order of the parts and stores D.
#pragma once

#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/tile/cluster_position.cuh>
#include <deep_gemm/tile/smem.cuh>

namespace deep_gemm {

/// One math warp's view of 16 of the tile's rows, those of its `subtile`th 64: which part of K is its own, whose CTA
/// adds up, and where. Where K is split, a CTA computes one tile in all (selection sees to it), so buffers and barriers
/// serve once and need no hand-back.
template <GemmConfig c>
class SplitRows {
public:
    DG_DEVICE SplitRows(const Smem<c>& smem, const ClusterPosition<c>& position, int32_t subtile)
        : smem_(smem), position_(position) {
        constexpr int32_t kWarps = c.row_warpgroups() * 4;
        // Of two times 64 rows, a warp owns one where there are two parts.
        const int32_t row_warp = subtile * kWarps + (threadIdx.x / 32 + subtile) % kWarps;
        mine_ = position.k * c.k_warpgroups + threadIdx.x / (kWarps * 32);
        owner_ = row_warp % c.k_parts();
        slot_ = row_warp / c.k_parts() * c.k_warpgroups + owner_ % c.k_warpgroups;
    }

    DG_DEVICE bool owned() const { return mine_ == owner_; }

    /// To the owner.
    DG_DEVICE void send(const float (&total)[c.tile.cols / 2]) const {
        const uint32_t part = smem_.reduction(slot_) + (mine_ - (mine_ > owner_)) * kPartBytes + threadIdx.x % 32 * 16;
        if constexpr (c.cluster.k > 1) {
            const uint32_t owner_rank = position_.rank(position_.row, position_.col, owner_ / c.k_warpgroups);
            const uint32_t target = ptx::map_to_cta(part, owner_rank),
                           barrier = ptx::map_to_cta(smem_.reduction_barrier(slot_), owner_rank);
#pragma unroll
            for (int32_t i = 0; i < c.tile.cols / 2; i += 4)
                ptx::store_cluster_async(target + i * 128, total[i], total[i + 1], total[i + 2], total[i + 3], barrier);
        } else {
#pragma unroll
            for (int32_t i = 0; i < c.tile.cols / 2; i += 4)
                ptx::store_shared_x4(part + i * 128, total[i], total[i + 1], total[i + 2], total[i + 3]);
            __syncwarp();
            if (threadIdx.x % 32 == 0) ptx::barrier_arrive(smem_.reduction_barrier(slot_));
        }
    }

    /// The owner: `total` becomes the sum of all parts, in the order of K.
    DG_DEVICE void add_up(float (&total)[c.tile.cols / 2]) const {
        ptx::barrier_wait(smem_.reduction_barrier(slot_), 0);
        const uint32_t parts = smem_.reduction(slot_) + threadIdx.x % 32 * 16;
#pragma unroll
        for (int32_t i = 0; i < c.tile.cols / 2; i += 4) {
            const float4 own = make_float4(total[i], total[i + 1], total[i + 2], total[i + 3]);
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int32_t k = 0; k < c.k_parts(); ++k) {
                // The own part has no place among those received; whatever is loaded in its turn is not used.
                const int32_t received = min(k - (k > mine_), c.k_parts() - 2);
                const float4 more = ptx::load_shared_x4(parts + received * kPartBytes + i * 128);
                sum.x += k == mine_ ? own.x : more.x, sum.y += k == mine_ ? own.y : more.y;
                sum.z += k == mine_ ? own.z : more.z, sum.w += k == mine_ ? own.w : more.w;
            }
            total[i] = sum.x, total[i + 1] = sum.y, total[i + 2] = sum.z, total[i + 3] = sum.w;
        }
    }

private:
    static constexpr int32_t kPartBytes = split_k_part_bytes(c);
    Smem<c> smem_;
    ClusterPosition<c> position_;
    int32_t mine_, owner_, slot_;
};

/// Where parts lie in the ring (reduces_in_ring): wait until no CTA that will be sent any reads its stages any more.
template <GemmConfig c>
DG_DEVICE void wait_for_rings(const Smem<c>& smem, const ClusterPosition<c>& position) {
    if constexpr (reduces_in_ring(c)) {
        const int32_t lane = threadIdx.x % 32;
        __syncwarp();
        if (lane < c.cluster.k && lane != position.k)
            ptx::barrier_arrive_remote(smem.rings_read(), position.rank(position.row, position.col, lane));
        ptx::barrier_wait(smem.rings_read(), 0);
    }
}

}  // namespace deep_gemm
