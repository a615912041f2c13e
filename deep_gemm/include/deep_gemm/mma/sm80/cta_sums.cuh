// Sums of CTAs that split a tile's K (ClusterShape::k): all send theirs to the first, which adds them up in order.
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/mma/sm80/multiply.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/store/parts.cuh>

namespace deep_gemm::sm80 {

/// Whether this CTA is to store. A CTA computes one tile in all (selection sees to it), so buffers and barriers serve
/// once and need no hand-back; nobody leaves before what it is sent has come.
template <Constant<GemmConfig> c>
DG_DEVICE bool add_up_ctas(WarpSums<c>& total, const Smem<c>& smem) {
    if constexpr (c.cluster.k == 1) return true;
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32,
                  rank = static_cast<int32_t>(ptx::cluster_cta_rank());
    const auto part = [&](int32_t sender, int32_t piece) {
        return lane_of_part(smem.cta_part(warp, sender) + piece * kAccumulators<c> * 128, lane);
    };
    if (rank > 0) {
#pragma unroll
        for (int32_t piece = 0; piece < row_pieces(c); ++piece)
            send_part<c>(total[piece], ptx::map_to_cta(part(rank, piece), 0),
                         ptx::map_to_cta(smem.cta_parts_barrier(warp), 0));
        return false;
    }
    ptx::barrier_wait(smem.cta_parts_barrier(warp), 0);
#pragma unroll
    for (int32_t sender = 1; sender < c.cluster.k; ++sender)
#pragma unroll
        for (int32_t piece = 0; piece < row_pieces(c); ++piece)
#pragma unroll
            for (int32_t i = 0; i < kAccumulators<c>; i += 4) {
                const auto more = load_part<c>(part(sender, piece) + part_offset(i));
                auto& sums = total[piece];
                sums[i] += more.x, sums[i + 1] += more.y, sums[i + 2] += more.z, sums[i + 3] += more.w;
            }
    return true;
}

}  // namespace deep_gemm::sm80
