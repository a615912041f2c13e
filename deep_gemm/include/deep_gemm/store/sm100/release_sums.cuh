// How store warps let go of an accumulator.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/tcgen05.cuh>
#include <deep_gemm/tile/cluster_position.cuh>

namespace deep_gemm::sm100 {

/// All sums of this warp are in registers: the accumulator may be written again.
template <Constant<GemmConfig> c>
DG_DEVICE void release_sums(uint32_t barrier, const ClusterPosition<c>& position) {
    ptx::tensor_fence_before_sync();
    __syncwarp();
    if (ptx::lane() != 0) return;
    if constexpr (mma_ctas(c) > 1)
        ptx::barrier_arrive_remote(barrier, ClusterPosition<c>::rank(0, position.col, position.k));
    else
        ptx::barrier_arrive(barrier);
}

}  // namespace deep_gemm::sm100
