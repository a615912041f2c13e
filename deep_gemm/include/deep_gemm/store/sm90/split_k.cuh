// Adding up the partial sums of warpgroups and CTAs that split K, through (distributed) shared memory and in a fixed
// order.
//
// The tile's rows are divided among warps, 16 each, and each 16 belong to one of the parts. Every warp of another part
// sends its accumulators, in register order, to the owner's CTA, where a barrier counts them. The owning warp waits for
// all, adds them up in the order of the parts and stores D.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/store/parts.cuh>
#include <deep_gemm/tile/cluster_position.cuh>

namespace deep_gemm {

inline constexpr int32_t kRingDone = 1;  // a named barrier of the math warps (issue_order.cuh's are of other kernels)

/// Returns whether this warp owns its rows and has their sum in `total`. Where K is split, a CTA computes one tile in
/// all (selection sees to it), so the buffers and barriers serve once and need no hand-back.
template <Constant<GemmConfig> c>
DG_DEVICE bool reduce_split_k(const Smem<c>& smem, const ClusterPosition<c>& position, Sums<c>& total) {
    using Four = decltype(load_part<c>(0));
    constexpr int32_t kPartBytes = split_k_part_bytes(c);
    constexpr int32_t kRowWarps = row_warpgroups(c) * 4;
    const int32_t row_warp = threadIdx.x / 32 % kRowWarps, lane = threadIdx.x % 32;
    const int32_t mine = position.k * c.split_k.warpgroups + threadIdx.x / (kRowWarps * 32);
    const int32_t owner = row_warp % k_parts(c);
    const int32_t slot = row_warp / k_parts(c) * c.split_k.warpgroups + owner % c.split_k.warpgroups;

    // Until no warp multiplies what parts and D are about to replace. All copies have come: each was waited for.
    if constexpr (c.split_k.parts_in_ring) ptx::named_barrier_wait(kRingDone, c.sm90.math_warpgroups * 128);
    if (mine != owner) {
        const uint32_t part = lane_of_part(smem.parts(slot) + (mine - (mine > owner)) * kPartBytes, lane);
        if constexpr (c.k_ctas() > 1) {
            const uint32_t owner_rank = position.rank(position.row, position.col, owner / c.split_k.warpgroups);
            send_part<c>(total, ptx::map_to_cta(part, owner_rank),
                         ptx::map_to_cta(smem.parts_barrier(slot), owner_rank));
        } else {
            put_part<c>(total, part);
            __syncwarp();
            if (lane == 0) ptx::barrier_arrive(smem.parts_barrier(slot));
        }
        return false;
    }

    ptx::barrier_wait(smem.parts_barrier(slot), 0);
    const uint32_t parts = lane_of_part(smem.parts(slot), lane);
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; i += 4) {
        const Four own = {total[i], total[i + 1], total[i + 2], total[i + 3]};
        Four sum = {0, 0, 0, 0};
#pragma unroll
        for (int32_t k = 0; k < k_parts(c); ++k) {
            // The own part has no place among those received; whatever is loaded in its turn is not used.
            const int32_t received = min(k - (k > mine), k_parts(c) - 2);
            const Four more = load_part<c>(parts + received * kPartBytes + part_offset(i));
            sum.x += k == mine ? own.x : more.x, sum.y += k == mine ? own.y : more.y;
            sum.z += k == mine ? own.z : more.z, sum.w += k == mine ? own.w : more.w;
        }
        total[i] = sum.x, total[i + 1] = sum.y, total[i + 2] = sum.z, total[i + 3] = sum.w;
    }
    return true;
}

}  // namespace deep_gemm
