// A warp multiplies its share of a stage: matrices into registers, converted where the instruction has no such type.
#pragma once

#include <deep_gemm/mma/sm80/instruction.cuh>
#include <deep_gemm/mma/sm80/operands.cuh>
#include <deep_gemm/mma/sm80/packed_rows.cuh>

namespace deep_gemm::sm80 {

/// Which part of a tile, and of a stage's K, is this warp's.
template <GemmConfig c>
struct WarpPlace {
    int32_t row, col, k;  // first row and column in the tile; which of the warps that split K

    DG_DEVICE WarpPlace() {
        const int32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
        row = warp % c.sm80.row_warps * warp_rows(c);
        col = warp / c.sm80.row_warps % c.sm80.col_warps * warp_cols(c);
        k = warp / (c.sm80.row_warps * c.sm80.col_warps);
    }
};

/// What a warp adds up, by its 16 rows.
template <GemmConfig c>
using WarpSums = Sums<c>[row_pieces(c)];
template <GemmConfig c>
using BlockSums = Accumulators<c>[row_pieces(c)];

template <GemmConfig c, typename Sum>
DG_DEVICE void clear(Sum (&sums)[row_pieces(c)][kAccumulators<c>]) {
#pragma unroll
    for (auto& piece : sums)
#pragma unroll
        for (auto& sum : piece) sum = 0;
}

/// What the instruction takes of all rows and columns of a warp, for one step of K.
template <GemmConfig c>
struct StepWords {
    static constexpr int32_t kGroups = warp_cols(c) / Fragment16x8::kCols;
    uint32_t rows[row_pieces(c)][4], cols[kGroups][2];

    template <typename Sum>
    DG_DEVICE void multiply(Sum (&sums)[row_pieces(c)][kAccumulators<c>]) const {
#pragma unroll
        for (int32_t piece = 0; piece < row_pieces(c); ++piece)
#pragma unroll
            for (int32_t group = 0; group < kGroups; ++group)
                sm80::multiply<c.sm80.multiplied_as>(
                    reinterpret_cast<Sum(&)[4]>(sums[piece][group * Fragment16x8::kRegisters]), rows[piece],
                    cols[group]);
    }

    /// Of words as they lie, the first or second half of their K.
    DG_DEVICE StepWords converted(int32_t half) const {
        using Way = Convert<c.a.element, c.sm80.multiplied_as>;
        StepWords to;
#pragma unroll
        for (int32_t piece = 0; piece < row_pieces(c); ++piece)
#pragma unroll
            for (int32_t i = 0; i < 2; ++i)
                Way::run(rows[piece][half * 2 + i], to.rows[piece][i], to.rows[piece][2 + i]);
#pragma unroll
        for (int32_t group = 0; group < kGroups; ++group)
            Way::run(cols[group][half], to.cols[group][0], to.cols[group][1]);
        return to;
    }
};

template <GemmConfig c, bool = c.rows_operand().packed()>
struct SelectRows {
    using Type = OperandMatrices<c, c.rows_operand(), c.tile.rows, true>;
};
template <GemmConfig c>
struct SelectRows<c, true> {
    using Type = PackedRows<c>;
};

template <GemmConfig c>
class StageReader {
public:
    static constexpr int32_t kSteps = row_bytes(c, c.cols_operand()) / c.sm80.k_warps / kStepBytes;

    DG_DEVICE StageReader(const Smem<c>& smem, const WarpPlace<c>& place)
        : smem_(smem), rows_(place.row, place.k), cols_(place.col, place.k) {}

    DG_DEVICE void load(StepWords<c>& words, int32_t stage, int32_t step) {
        if constexpr (kPacked) {
            rows_.load(smem_.rows(stage), step);
        } else {
#pragma unroll
            for (int32_t piece = 0; piece < row_pieces(c); ++piece)
                rows_.load(smem_.rows(stage), piece, step, words.rows[piece]);
        }
        constexpr int32_t kGroups = StepWords<c>::kGroups;
#pragma unroll
        for (int32_t group = 0; group + 1 < kGroups; group += 2) {
            uint32_t both[4];
            cols_.load(smem_.cols(stage), group / 2, step, both);
#pragma unroll
            for (int32_t i = 0; i < 4; ++i) words.cols[group + i / 2][i % 2] = both[i];
        }
        if constexpr (kGroups % 2 == 1) {
            static_assert(kGroups == 1);
            cols_.load(smem_.cols(stage), 0, step, words.cols[0]);
        }
    }

    /// What packed rows are converted by, of all of a stage.
    DG_DEVICE void begin_block(int32_t stage) {
        if constexpr (kPacked) rows_.load_conversions(smem_, stage);
    }

    /// Rows that have come packed.
    DG_DEVICE void convert(StepWords<c>& words, int32_t step) const {
        if constexpr (kPacked) rows_.convert(words.rows, step);
    }

private:
    static constexpr bool kPacked = c.rows_operand().packed();

    const Smem<c>& smem_;
    typename SelectRows<c>::Type rows_;
    OperandMatrices<c, c.cols_operand(), c.tile.cols, false> cols_;
};

/// One step of K into the sums.
template <GemmConfig c, typename Sum>
DG_DEVICE void multiply_step(Sum (&sums)[row_pieces(c)][kAccumulators<c>], const StepWords<c>& words) {
    if constexpr (converts(c)) {
        words.converted(0).multiply(sums);
        words.converted(1).multiply(sums);
    } else {
        words.multiply(sums);
    }
}

}  // namespace deep_gemm::sm80
