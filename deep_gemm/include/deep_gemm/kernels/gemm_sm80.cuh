// The GEMM kernel of GPUs without wgmma: a persistent grid of CTAs.
//
//   copy        16 bytes a thread at a time, into the ring, K blocks that are wanted later (load/sm80/cp_async.cuh):
//               by a warp of its own, or by the others in turn
//   multiply    a warp's rows and columns of a tile, or its part of their K (mma/sm80/)
//   store       scale, add C, clear padding, write D from registers; blocks of nothing but padding at the end
#pragma once

#include <deep_gemm/load/sm80/cp_async.cuh>
#include <deep_gemm/mma/sm80/mainloop.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/store/dequantise.cuh>
#include <deep_gemm/store/sm80/quads.cuh>
#include <deep_gemm/tile/padding.cuh>

namespace deep_gemm::sm80 {

/// Rows of padding become zero, where each row of a contiguous layout names its expert.
template <GemmConfig c>
DG_DEVICE void clear_padding_rows(Results<c>& results, const Fragment<c>& at, const GemmParams& params) {
    const auto groups = static_cast<uint32_t>(params.num_groups);
    at.template for_each_along<true, Element::s32>(params.grouped_layout, 1, [&](int32_t i, int32_t expert) {
        if (static_cast<uint32_t>(expert) >= groups) results[i] = 0;
    });
}

/// The end of 16 rows of a tile.
template <GemmConfig c>
DG_DEVICE void store_results(Results<c>& results, const Fragment<c>& at, const Tile& tile, const GemmParams& params) {
    if constexpr (c.add_c) add_c<c>(results, at, params);
    if constexpr (c.grouping == Grouping::m_psum) clear_padding<c>(results, at, tile);
    if constexpr (c.grouping == Grouping::m_contiguous) clear_padding_rows<c>(results, at, params);
    if constexpr (stores_quads(c))
        if (has_chunks<c>(at, params)) return store_quads<c>(results, at, params);
    store_direct<c>(results, at, params);
}

/// A tile's pieces of 16 rows, one after the other. A loop over them NVVM (CUDA 13.0) may leave rolled, with all sums
/// in local memory.
template <GemmConfig c, int32_t kPiece = 0>
DG_DEVICE void store_tile(WarpSums<c>& total, const Tile& tile, const WarpPlace<c>& place, const GemmParams& params) {
    const int32_t lane = threadIdx.x % 32;
    Sums<c>& sums = total[kPiece];
    if constexpr (reads_widened_a(c))
        for (auto& sum : sums) sum *= Convert<Element::e4m3, Element::fp16>::kAheadUndone;
    const Fragment<c> at(tile, place.row + kPiece * Fragment16x8::kRows + Fragment16x8::row(lane),
                         place.col + Fragment16x8::col(lane), params);
    if constexpr (c.finishes_sums()) {
        if constexpr (c.a.element == Element::s4i)
            for (auto& sum : sums) sum *= Convert<c.b.element, c.a.element>::kOf16;
        Results<c> results;
        dequantise<c>(results, sums, at, params);
        store_results<c>(results, at, tile, params);
    } else {
        undo_conversion<c>(sums);
        store_results<c>(sums, at, tile, params);
    }
    if constexpr (kPiece + 1 < row_pieces(c)) store_tile<c, kPiece + 1>(total, tile, place, params);
}

template <GemmConfig c>
DG_DEVICE void run_math(const Smem<c>& smem, const GemmParams& params) {
    MainLoop<c> main_loop(smem, params);
    WarpSums<c> total;
    Tile tile;
    while (main_loop.next(tile)) {
        main_loop.run(total, tile);
        if (add_up<c>(total, smem, main_loop.place())) store_tile<c>(total, tile, main_loop.place(), params);
    }
}

template <GemmConfig c>
DG_DEVICE void run_gemm(const GemmParams& params) {
    extern __shared__ uint8_t dynamic_smem[];
    const Smem<c> smem(dynamic_smem);
    ptx::wait_for_previous_grid();
    smem.groups().template fill<threads(c)>(params);
    if (threadIdx.x == 0) smem.init_barriers();
    __syncthreads();
    if (!has_copy_warp(c) || threadIdx.x < math_threads(c))
        run_math<c>(smem, params);
    else
        LoadRole<c>(smem, params).run();
    if constexpr (marks_padding(c)) fill_padding_blocks<c>(params, threadIdx.x / 32, threads(c) / 32);
}

}  // namespace deep_gemm::sm80

namespace deep_gemm {

using sm80::threads;

template <GemmConfig c>
DG_DEVICE void run_gemm_sm80(const GemmParams& params) {
    sm80::run_gemm<c>(params);
}

}  // namespace deep_gemm
