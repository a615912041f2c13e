// From a stage to registers: what mma.sync takes of 16 rows, or of 16 columns, by a step of K (32 bytes as they lie).
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/load/sm80/cp_async.cuh>
#include <deep_gemm/mma/sm80/warp_place.cuh>
#include <deep_gemm/ptx/load_matrix.cuh>

namespace deep_gemm::sm80 {

/// Of an operand of a stage. `first` is the warp's first row or column in the tile; K is counted in steps of its own.
template <Constant<GemmConfig> c, Constant<Operand> o, int32_t kExtent, bool kRows>
class OperandMatrices {
public:
    /// Of the ring's first stage, which is looked at first.
    DG_DEVICE OperandMatrices(uint32_t stage, int32_t first, int32_t k_warp) {
        const int32_t lane = threadIdx.x % 32, in_matrix = lane % 8, one = lane / 8 % 2, other = lane / 16;
        // The instruction takes matrices of rows by K in the order (0, 0), (1, 0), (0, 1), (1, 1), columns of which 16
        // are two of its operands, (0, 0), (0, 1), (1, 0), (1, 1).
        const int32_t along = kRows ? one : other, k = kRows ? other : one;
        if constexpr (o.mn_major())
            next_ = stage + first / kMnBlock * c.tile.k * kSwizzleBytes +
                    chunk_offset(k * 8 + in_matrix, first % kMnBlock / 8 + along);
        else
            next_ =
                stage + k_warp * kWarpSpans * kExtent * kSwizzleBytes + chunk_offset(first + along * 8 + in_matrix, k);
    }

    /// A stage is looked at ahead of its first load, by its distance from the one before, and entered with that load.
    /// Addresses that are made where they are wanted ptxas (CUDA 13.0) puts into registers that it wants again at once,
    /// and products wait until loads have read them.
    DG_DEVICE void look_ahead(int32_t bytes) { next_ += bytes; }
    DG_DEVICE void enter() {
#pragma unroll
        for (int32_t i = 0; i < kTurns; ++i) at_[i] = next_ ^ (i * kTurnBytes);
    }

    /// The `piece`th 16 rows or columns.
    DG_DEVICE void load(int32_t piece, int32_t step, uint32_t (&words)[4]) const {
        if constexpr (in_containers(c, o))
            ptx::load_fp4_matrix_x4(address(piece, step), words);
        else
            ptx::load_matrix_x4<o.mn_major()>(address(piece, step), words);
    }

    /// Eight columns only.
    DG_DEVICE void load(int32_t piece, int32_t step, uint32_t (&words)[2]) const {
        if constexpr (in_containers(c, o))
            ptx::load_fp4_matrix_x2(address(piece, step), words);
        else
            ptx::load_matrix_x2<o.mn_major()>(address(piece, step), words);
    }

private:
    static constexpr int32_t kPiece = 16, kWarpSpans = row_bytes(c, o) / c.sm80.k_warps / kSwizzleBytes;
    /// Of a line's chunks two belong together, and pairs are exchanged: so many pairs are a line.
    static constexpr int32_t kTurnBytes = 2 * kChunkBytes, kTurns = kSwizzleBytes / kTurnBytes;
    static_assert(kTurnBytes == kStepBytes);

    DG_DEVICE uint32_t address(int32_t piece, int32_t step) const {
        if constexpr (o.mn_major())
            return at_[piece % kTurns] + (piece / kTurns * c.tile.k + step * kPiece) * kSwizzleBytes;
        else
            return at_[step % kTurns] + (step / kTurns * kExtent + piece * kPiece) * kSwizzleBytes;
    }

    uint32_t next_, at_[kTurns];  // of the first piece and step
};

/// Codes of FP4 come in the low half of a byte, and are multiplied in its middle.
template <bool kInContainers, typename Words>
DG_DEVICE void move_to_middle(Words& words) {
    if constexpr (kInContainers)
#pragma unroll
        for (auto& piece : words)
#pragma unroll
            for (uint32_t& word : piece) word <<= 2;
}

/// A warp's rows of a stage, as they lie.
template <Constant<GemmConfig> c>
class Rows {
public:
    using Words = uint32_t[row_pieces(c)][4];

    DG_DEVICE Rows(uint32_t stage, const WarpPlace<c>& place) : matrices_(stage, place.row, place.k) {}

    DG_DEVICE void look_ahead(int32_t bytes) { matrices_.look_ahead(bytes); }
    DG_DEVICE void enter() { matrices_.enter(); }
    DG_DEVICE void load(int32_t step, Words& words) const {
#pragma unroll
        for (int32_t piece = 0; piece < row_pieces(c); ++piece) matrices_.load(piece, step, words[piece]);
    }
    DG_DEVICE void begin_block(const Smem<c>&, int32_t) const {}
    DG_DEVICE void convert(Words& words, int32_t) const { move_to_middle<in_containers(c, c.rows_operand())>(words); }

private:
    OperandMatrices<c, ConfigParts<c>::kRows, c.tile.rows, true> matrices_;
};

/// Its columns.
template <Constant<GemmConfig> c>
class Cols {
    static constexpr int32_t kGroups = col_groups(c);

public:
    using Words = uint32_t[kGroups][2];

    DG_DEVICE Cols(uint32_t stage, const WarpPlace<c>& place) : matrices_(stage, place.col, place.k) {}

    DG_DEVICE void look_ahead(int32_t bytes) { matrices_.look_ahead(bytes); }
    DG_DEVICE void enter() { matrices_.enter(); }
    DG_DEVICE void load(int32_t step, Words& words) const {
#pragma unroll
        for (int32_t group = 0; group + 1 < kGroups; group += 2) {
            uint32_t both[4];
            matrices_.load(group / 2, step, both);
#pragma unroll
            for (int32_t i = 0; i < 4; ++i) words[group + i / 2][i % 2] = both[i];
        }
        if constexpr (kGroups % 2 == 1) {
            static_assert(kGroups == 1);
            matrices_.load(0, step, words[0]);
        }
    }
    DG_DEVICE void convert(Words& words, int32_t) const { move_to_middle<in_containers(c, c.cols_operand())>(words); }

private:
    OperandMatrices<c, ConfigParts<c>::kCols, c.tile.cols, false> matrices_;
};

}  // namespace deep_gemm::sm80
