// What becomes of a tile's sums, whichever role has them: a chunk of columns at a time, D goes out through the copy
// engine or from registers.
#pragma once

#include <deep_gemm/epilogue/finish_tile.cuh>
#include <deep_gemm/store/found_runs.cuh>
#include <deep_gemm/store/sm100/direct.cuh>
#include <deep_gemm/store/sm100/parts.cuh>
#include <deep_gemm/store/sm100/staged.cuh>

namespace deep_gemm::sm100 {

template <Constant<GemmConfig> c, bool = is_staged(c.store)>
struct SelectStores {
    using Type = DirectStores<c>;
};
template <Constant<GemmConfig> c>
struct SelectStores<c, true> {
    using Type = StagedStores<c>;
};

template <Constant<GemmConfig> c>
using FoundRuns =
    FoundRunsOf<c, Smem<c>, piece_d_cols(c), finds_runs_alone(c) ? 4 : store_warps(c), finds_runs_alone(c)>;

/// What a store warp has of each tile, whoever brings the sums. Chunks are the warp's.
template <Constant<GemmConfig> c>
class TileStores {
public:
    DG_DEVICE TileStores(const Smem<c>& smem, const GemmParams& params)
        : params_(params), stores_(smem), padding_(smem), parts_(smem), runs_(smem) {}

    DG_DEVICE void begin() const { padding_.begin(); }

    /// Where CTAs split K: whether this one has the chunk, and what becomes of those that it has not.
    DG_DEVICE bool owns(int32_t chunk) const { return parts_.owns(chunk); }
    DG_DEVICE void send(const PieceSums<c>& sums, int32_t chunk) const { parts_.send(sums, chunk); }

    DG_DEVICE void write(PieceSums<c>& sums, const Tile& tile, int32_t chunk) {
        if constexpr (c.cluster.k > 1) parts_.add(sums, chunk);
        Piece<c> piece(tile, chunk, params_);
        if constexpr (Piece<c>::kExchanges) runs_.set_exchange(piece);
        PieceValues<c> values;
        finish_tile<c>(values, sums, piece, tile, PiecePadding<c>{padding_}, params_);
        stores_.write(values, PlaceOfD<Piece<c>>(piece), tile, chunk, params_);
    }

    /// What warps find of columns that share a scale, of all chunks before one is written. Others wait for it behind
    /// the last.
    DG_DEVICE void begin_runs() const { runs_.begin(); }
    DG_DEVICE void find(const PieceSums<c>& sums, const Tile& tile, int32_t chunk) const {
        static_assert(c.cluster.k == 1, "all warps have sums");
        Piece<c> piece(tile, chunk, params_);
        runs_.set_exchange(piece), piece.finds = true;
        PieceValues<c> values;
        finish_tile<c>(values, sums, piece, tile, PiecePadding<c>{padding_}, params_);
    }
    DG_DEVICE void wait_for_runs() const { runs_.wait(); }

    DG_DEVICE void end() {
        padding_.end();
        if constexpr (Piece<c>::kExchanges) runs_.end();
    }

    /// Behind the last tile.
    DG_DEVICE void finish() const { stores_.finish(); }

private:
    const GemmParams& params_;
    typename SelectStores<c>::Type stores_;
    PaddingRows<c> padding_;
    Parts<c> parts_;
    FoundRuns<c> runs_;
};

}  // namespace deep_gemm::sm100
