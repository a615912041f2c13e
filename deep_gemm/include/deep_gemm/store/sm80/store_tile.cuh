// What becomes of a warp's sums of a tile.
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/convert/bytes.cuh>
#include <deep_gemm/convert/weights.cuh>
#include <deep_gemm/epilogue/finish_tile.cuh>
#include <deep_gemm/mma/sm80/warp_place.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/store/sm80/layout_padding.cuh>
#include <deep_gemm/store/sm80/quads.cuh>

namespace deep_gemm::sm80 {

/// Factors that the conversion of A has left in sums: powers of two, so nothing is rounded. Sums of int4 that are
/// stored as integers have none: it is their scales that want 16.
template <Constant<GemmConfig> c>
DG_DEVICE void undo_conversion_of_a(Sums<c>& sums) {
    if constexpr (reads_widened_a(c))
        for (auto& sum : sums) sum *= Convert<Element::e4m3, Element::fp16>::kAheadUndone;
    else if constexpr (c.a.element == Element::s4i && c.output != Element::s32)
        for (auto& sum : sums) sum *= Convert<c.b.element, c.a.element>::kOf16;
}

template <Constant<GemmConfig> c>
DG_DEVICE Fragment<c> piece_of_warp(const Tile& tile, const WarpPlace<c>& place, int32_t piece,
                                    const GemmParams& params) {
    const int32_t lane = threadIdx.x % 32;
    return {tile, place.row + piece * Fragment16x8::kRows + Fragment16x8::row(lane),
            place.col + Fragment16x8::col(lane), params};
}

/// D out of registers, behind a gate or without.
template <Constant<GemmConfig> c>
DG_DEVICE void write_piece(const Results<c>& results, const Fragment<c>& at, const GemmParams& params) {
    if constexpr (c.gate.any() && c.swap_ab)
        PlaceOfD<Fragment<c>>(at).store(results, params);
    else if constexpr (c.gate.any())
        store_piece<ConfigParts<c>::kBehindGate>(results, PlaceOfD<Fragment<c>>(at), params);
    else
        store_piece<c>(results, at, params);
}

/// A tile's pieces of 16 rows, one after the other. A loop over them NVVM (CUDA 13.0) may leave rolled, with all sums
/// in local memory.
template <Constant<GemmConfig> c, int32_t kPiece = 0>
DG_DEVICE void store_pieces(WarpSums<c>& total, const Tile& tile, const WarpPlace<c>& place, const GemmParams& params) {
    const Fragment<c> at = piece_of_warp<c>(tile, place, kPiece, params);
    undo_conversion_of_a<c>(total[kPiece]);
    Results<c> results;
    finish_tile<c>(results, total[kPiece], at, tile, LayoutPadding<c>(params), params);
    write_piece<c>(results, at, params);
    if constexpr (kPiece + 1 < row_pieces(c)) store_pieces<c, kPiece + 1>(total, tile, place, params);
}

template <Constant<GemmConfig> c>
using WarpResults = Results<c>[row_pieces(c)];

/// What they find of columns that share a scale, and others have a part of.
template <Constant<GemmConfig> c, int32_t kPiece = 0>
DG_DEVICE void find_runs(WarpResults<c>& results, WarpSums<c>& total, const Tile& tile, const WarpPlace<c>& place,
                         const Smem<c>& smem, const GemmParams& params) {
    undo_conversion_of_a<c>(total[kPiece]);
    Fragment<c> at = piece_of_warp<c>(tile, place, kPiece, params);
    at.area = smem.exchange(), at.finds = true;
    finish_tile<c>(results[kPiece], total[kPiece], at, tile, LayoutPadding<c>(params), params);
    if constexpr (kPiece + 1 < row_pieces(c)) find_runs<c, kPiece + 1>(results, total, tile, place, smem, params);
}

/// And what they store when all have found theirs.
template <Constant<GemmConfig> c, int32_t kPiece = 0>
DG_DEVICE void store_found(WarpResults<c>& results, const Tile& tile, const WarpPlace<c>& place, const Smem<c>& smem,
                           const GemmParams& params) {
    Fragment<c> at = piece_of_warp<c>(tile, place, kPiece, params);
    at.area = smem.exchange();
    quantise_found<c>(results[kPiece], at, tile, LayoutPadding<c>(params), params);
    write_piece<c>(results[kPiece], at, params);
    if constexpr (kPiece + 1 < row_pieces(c)) store_found<c, kPiece + 1>(results, tile, place, smem, params);
}

/// A warp's sums of a tile.
template <Constant<GemmConfig> c>
DG_DEVICE void store_tile(WarpSums<c>& total, const Tile& tile, const WarpPlace<c>& place, const Smem<c>& smem,
                          const GemmParams& params) {
    if constexpr (Fragment<c>::kExchanges) {
        constexpr int32_t kRunsFound = 7, kThreads = c.sm80.row_warps * c.col_warps * 32;  // those that have sums
        WarpResults<c> results;
        ptx::named_barrier_wait(kRunsFound, kThreads);  // what the tile before found has been read
        find_runs<c>(results, total, tile, place, smem, params);
        ptx::named_barrier_wait(kRunsFound, kThreads);
        store_found<c>(results, tile, place, smem, params);
    } else {
        store_pieces<c>(total, tile, place, params);
    }
}

}  // namespace deep_gemm::sm80
