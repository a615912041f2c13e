// The GEMM kernel of GPUs without wgmma: a persistent grid of CTAs.
//
//   copy        into the ring, K blocks that are wanted later: by a warp of its own, or by the others, in turn 16 bytes
//               a thread at a time (load/sm80/cp_async.cuh), or one of them boxes (load/sm80/boxes.cuh)
//   multiply    a warp's rows and columns of a tile, or its part of their K (mma/sm80/)
//   store       finish sums (epilogue/), write D from registers; blocks of nothing but padding at the end
#pragma once

#include <deep_gemm/load/sm80/load_role.cuh>
#include <deep_gemm/mma/sm80/cta_sums.cuh>
#include <deep_gemm/mma/sm80/mainloop.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/store/sm80/store_tile.cuh>
#include <deep_gemm/tile/padding.cuh>

namespace deep_gemm::sm80 {

/// Where CTAs split K: until all can be sent parts.
template <Constant<GemmConfig> c>
DG_DEVICE void wait_for_receivers() {
    if constexpr (c.cluster.k > 1) ptx::cluster_wait();
}

template <Constant<GemmConfig> c>
DG_DEVICE void run_math(const Smem<c>& smem, const GemmParams& params) {
    MainLoop<c> main_loop(smem, params);
    wait_for_receivers<c>();
    WarpSums<c> total;
    Tile tile;
    while (main_loop.next(tile)) {
        main_loop.run(total, tile);
        if (add_up<c>(total, smem, main_loop.place()) && add_up_ctas<c>(total, smem))
            store_tile<c>(total, tile, main_loop.place_behind(), smem, params);
    }
}

template <Constant<GemmConfig> c>
DG_DEVICE void run_gemm(const GemmParams& params) {
    extern __shared__ uint8_t dynamic_smem[];
    const Smem<c> smem(dynamic_smem);
    ptx::wait_for_previous_grid();
    smem.groups().template fill<threads(c)>(params);
    if (threadIdx.x == 0) smem.init_barriers();
    if constexpr (c.cluster.k > 1) ptx::cluster_arrive();
    __syncthreads();
    if (!has_copy_warp(c) || threadIdx.x < math_threads(c))
        run_math<c>(smem, params);
    else {
        LoadRole<c>(smem, params).run();
        wait_for_receivers<c>();
    }
    if constexpr (marks_padding(c)) fill_padding_blocks<c>(params, threadIdx.x / 32, threads(c) / 32);
}

}  // namespace deep_gemm::sm80

namespace deep_gemm {

using sm80::threads;

template <Constant<GemmConfig> c>
DG_DEVICE void run_gemm_sm80(const GemmParams& params) {
    sm80::run_gemm<c>(params);
}

}  // namespace deep_gemm
