// From a stage to registers: what mma.sync takes of 16 rows, or of 16 columns, by a step of K (32 bytes as they lie).
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/load/sm80/cp_async.cuh>
#include <deep_gemm/mma/sm80/warp_place.cuh>
#include <deep_gemm/ptx/load_matrix.cuh>

namespace deep_gemm::sm80 {

/// Of an operand of a stage. `first` is the warp's first row or column in the tile; K is counted in steps of its own.
template <GemmConfig c, Operand o, int32_t kExtent, bool kRows>
class OperandMatrices {
public:
    DG_DEVICE OperandMatrices(int32_t first, int32_t k_warp) {
        const int32_t lane = threadIdx.x % 32, in_matrix = lane % 8, one = lane / 8 % 2, other = lane / 16;
        // The instruction takes matrices of rows by K in the order (0, 0), (1, 0), (0, 1), (1, 1), columns of which 16
        // are two of its operands, (0, 0), (0, 1), (1, 0), (1, 1).
        const int32_t along = kRows ? one : other, k = kRows ? other : one;
        if constexpr (o.mn_major()) {
            line_ = k * 8 + in_matrix, chunk_ = first % kMnBlock / 8 + along;
            offset_ = first / kMnBlock * c.tile.k * kSwizzleBytes;
        } else {
            line_ = first + along * 8 + in_matrix, chunk_ = k;
            offset_ = k_warp * kWarpSpans * kExtent * kSwizzleBytes;
        }
    }

    /// The `piece`th 16 rows or columns.
    DG_DEVICE void load(uint32_t stage, int32_t piece, int32_t step, uint32_t (&words)[4]) const {
        ptx::load_matrix_x4<o.mn_major()>(address(stage, piece, step), words);
    }

    /// Eight columns only.
    DG_DEVICE void load(uint32_t stage, int32_t piece, int32_t step, uint32_t (&words)[2]) const {
        ptx::load_matrix_x2<o.mn_major()>(address(stage, piece, step), words);
    }

private:
    static constexpr int32_t kSpanSteps = kSwizzleBytes / kStepBytes, kPiece = 16,
                             kWarpSpans = row_bytes(c, o) / c.sm80.k_warps / kSwizzleBytes;

    DG_DEVICE uint32_t address(uint32_t stage, int32_t piece, int32_t step) const {
        if constexpr (o.mn_major()) {
            const int32_t block = piece * kPiece / kMnBlock, within = piece % (kMnBlock / kPiece) * (kPiece / 8);
            return stage + offset_ + (block * c.tile.k + step * kPiece) * kSwizzleBytes +
                   chunk_offset(line_, chunk_ ^ within);
        } else {
            return stage + offset_ + (step / kSpanSteps * kExtent + piece * kPiece) * kSwizzleBytes +
                   chunk_offset(line_, chunk_ ^ (step % kSpanSteps * 2));
        }
    }

    int32_t line_, chunk_, offset_;
};

/// A warp's rows of a stage, as they lie.
template <GemmConfig c>
class Rows {
public:
    using Words = uint32_t[row_pieces(c)][4];

    DG_DEVICE explicit Rows(const WarpPlace<c>& place) : matrices_(place.row, place.k) {}

    DG_DEVICE void load(uint32_t stage, int32_t step, Words& words) const {
#pragma unroll
        for (int32_t piece = 0; piece < row_pieces(c); ++piece) matrices_.load(stage, piece, step, words[piece]);
    }
    DG_DEVICE void begin_block(const Smem<c>&, int32_t) const {}
    DG_DEVICE void convert(Words&, int32_t) const {}

private:
    OperandMatrices<c, c.rows_operand(), c.tile.rows, true> matrices_;
};

/// Its columns.
template <GemmConfig c>
class Cols {
    static constexpr int32_t kGroups = col_groups(c);

public:
    using Words = uint32_t[kGroups][2];

    DG_DEVICE explicit Cols(const WarpPlace<c>& place) : matrices_(place.col, place.k) {}

    DG_DEVICE void load(uint32_t stage, int32_t step, Words& words) const {
#pragma unroll
        for (int32_t group = 0; group + 1 < kGroups; group += 2) {
            uint32_t both[4];
            matrices_.load(stage, group / 2, step, both);
#pragma unroll
            for (int32_t i = 0; i < 4; ++i) words[group + i / 2][i % 2] = both[i];
        }
        if constexpr (kGroups % 2 == 1) {
            static_assert(kGroups == 1);
            matrices_.load(stage, 0, step, words[0]);
        }
    }
    DG_DEVICE void convert(Words&, int32_t) const {}

private:
    OperandMatrices<c, c.cols_operand(), c.tile.cols, false> matrices_;
};

}  // namespace deep_gemm::sm80
