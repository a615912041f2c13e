// The last tiles, which two CTAs share (SplitK::last_tiles): each has the sum over its half of K.
//
// Of every two pieces of 16 rows, a warp of one CTA owns the first and the same warp of the other CTA the second. Each
// sends what it does not own, adds what it is sent to what it owns, and stores that. Nothing is left to be multiplied,
// so the parts go where stages were, when all warps over there have said that they are done.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/store/parts.cuh>
#include <deep_gemm/tile/cluster_position.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// Whether this CTA stores 16 rows of a tile: those of a math warp, of the `subtile`th 64 rows of its warpgroup.
template <Constant<GemmConfig> c>
DG_DEVICE bool owns(const Tile& tile, int32_t warp, int32_t subtile) {
    if constexpr (!c.split_k.last_tiles) return true;
    return !tile.shared || shared_piece(c, warp, subtile) % 2 == ClusterPosition<c>().k;
}

/// Sends one piece to the CTA that owns it.
template <Constant<GemmConfig> c>
DG_DEVICE void send_piece(const Smem<c>& smem, const Sums<c>& total, int32_t piece, int32_t owner) {
    send_part<c>(total, ptx::map_to_cta(lane_of_part(smem.parts(piece / 2), threadIdx.x % 32), owner),
                 ptx::map_to_cta(smem.parts_barrier(piece / 2), owner));
}

/// Adds the other CTA's part of a piece.
template <Constant<GemmConfig> c>
DG_DEVICE void receive_piece(const Smem<c>& smem, Sums<c>& total, int32_t piece) {
    ptx::barrier_wait(smem.parts_barrier(piece / 2), 0);
    const uint32_t part = lane_of_part(smem.parts(piece / 2), threadIdx.x % 32);
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; i += 4) {
        const auto other = load_part<c>(part + part_offset(i));  // a sum of two has no order
        total[i] += other.x, total[i + 1] += other.y, total[i + 2] += other.z, total[i + 3] += other.w;
    }
}

/// The pieces that this CTA owns get their sums. Once: a shared tile is the last.
template <Constant<GemmConfig> c, int32_t kSubtiles>
DG_DEVICE void exchange_pieces(const Smem<c>& smem, Sums<c> (&total)[kSubtiles]) {
    static_assert(c.grouping == Grouping::dense && c.cluster.size() == 2 && c.cluster.k == 2 && kSubtiles <= 2);
    const int32_t warp = threadIdx.x / 32, mine = ClusterPosition<c>().k;
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::barrier_arrive_remote(smem.ring_done(), 1 - mine);
    const auto each = [&](bool owned, const auto& visit) {
        if ((shared_piece(c, warp, 0) % 2 == mine) == owned) visit(total[0], shared_piece(c, warp, 0));
        if constexpr (kSubtiles == 2)
            if ((shared_piece(c, warp, 1) % 2 == mine) == owned) visit(total[1], shared_piece(c, warp, 1));
    };
    each(false, [&](const auto& part, int32_t piece) {
        ptx::barrier_wait(smem.ring_done(), 0);
        send_piece<c>(smem, part, piece, 1 - mine);
    });
    each(true, [&](auto& sum, int32_t piece) { receive_piece<c>(smem, sum, piece); });
}

}  // namespace deep_gemm
