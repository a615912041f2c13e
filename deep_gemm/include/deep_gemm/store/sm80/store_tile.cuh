// What becomes of a warp's sums of a tile.
#pragma once

#include <deep_gemm/convert/bytes.cuh>
#include <deep_gemm/convert/weights.cuh>
#include <deep_gemm/epilogue/finish_tile.cuh>
#include <deep_gemm/mma/sm80/warp_place.cuh>
#include <deep_gemm/store/sm80/layout_padding.cuh>
#include <deep_gemm/store/sm80/quads.cuh>

namespace deep_gemm::sm80 {

/// Factors that the conversion of A has left in sums: powers of two, so nothing is rounded. Sums of int4 that are
/// stored as integers have none: it is their scales that want 16.
template <GemmConfig c>
DG_DEVICE void undo_conversion_of_a(Sums<c>& sums) {
    if constexpr (reads_widened_a(c))
        for (auto& sum : sums) sum *= Convert<Element::e4m3, Element::fp16>::kAheadUndone;
    else if constexpr (c.a.element == Element::s4i && c.output != Element::s32)
        for (auto& sum : sums) sum *= Convert<c.b.element, c.a.element>::kOf16;
}

/// A tile's pieces of 16 rows, one after the other. A loop over them NVVM (CUDA 13.0) may leave rolled, with all sums
/// in local memory.
template <GemmConfig c, int32_t kPiece = 0>
DG_DEVICE void store_tile(WarpSums<c>& total, const Tile& tile, const WarpPlace<c>& place, const GemmParams& params) {
    const int32_t lane = threadIdx.x % 32;
    const Fragment<c> at(tile, place.row + kPiece * Fragment16x8::kRows + Fragment16x8::row(lane),
                         place.col + Fragment16x8::col(lane), params);
    undo_conversion_of_a<c>(total[kPiece]);
    Results<c> results;
    finish_tile<c>(results, total[kPiece], at, tile, LayoutPadding<c>(params), params);
    store_piece<c>(results, at, params);
    if constexpr (kPiece + 1 < row_pieces(c)) store_tile<c, kPiece + 1>(total, tile, place, params);
}

}  // namespace deep_gemm::sm80
