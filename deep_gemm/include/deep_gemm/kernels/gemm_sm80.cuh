// The GEMM kernel of GPUs without wgmma: a persistent grid of CTAs, whose warps all do the same.
//
//   copy        16 bytes a thread at a time, into the ring, K blocks that are wanted later (load/sm80/cp_async.cuh)
//   multiply    a warp's rows and columns of a tile, or its part of their K (mma/sm80/)
//   store       scale, add C, clear padding, write D from registers; blocks of nothing but padding at the end
#pragma once

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

template <GemmConfig c>
DG_DEVICE void store_tile(WarpSums<c>& total, const Tile& tile, const WarpPlace<c>& place, const GemmParams& params) {
    const int32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int32_t piece = 0; piece < row_pieces(c); ++piece) {
        if constexpr (reads_widened_a(c))
            for (auto& sum : total[piece]) sum *= Convert<Element::e4m3, Element::fp16>::kAheadUndone;
        const Fragment<c> at(tile, place.row + piece * Fragment16x8::kRows + Fragment16x8::row(lane),
                             place.col + Fragment16x8::col(lane), params);
        if constexpr (c.finishes_sums()) {
            if constexpr (c.a.element == Element::s4i)
                for (auto& sum : total[piece]) sum *= Convert<c.b.element, c.a.element>::kOf16;
            Results<c> results;
            dequantise<c>(results, total[piece], at, params);
            store_results<c>(results, at, tile, params);
        } else {
            store_results<c>(total[piece], at, tile, params);
        }
    }
}

template <GemmConfig c>
DG_DEVICE void run_gemm(const GemmParams& params) {
    extern __shared__ uint8_t dynamic_smem[];
    const Smem<c> smem(dynamic_smem);
    ptx::wait_for_previous_grid();
    smem.groups().template fill<threads(c)>(params);
    if constexpr (TileScheduler<c>::kReadsTable) __syncthreads();
    LoadRole<c> load(smem, params);
    MainLoop<c> main_loop(smem, load);
    WarpSums<c> total;
    Tile tile;
    while (main_loop.next(tile)) {
        main_loop.run(total, tile);
        if (add_up<c>(total, smem, main_loop.place())) store_tile<c>(total, tile, main_loop.place(), params);
    }
    if constexpr (marks_padding(c)) fill_padding_blocks<c>(params, threadIdx.x / 32, warps(c));
}

}  // namespace deep_gemm::sm80

namespace deep_gemm {

using sm80::threads;

template <GemmConfig c>
DG_DEVICE void run_gemm_sm80(const GemmParams& params) {
    sm80::run_gemm<c>(params);
}

}  // namespace deep_gemm
