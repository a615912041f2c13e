// A warp multiplies its share of a stage: matrices into registers, converted where the instruction has no such type.
#pragma once

#include <deep_gemm/mma/sm80/instruction.cuh>
#include <deep_gemm/mma/sm80/operands.cuh>
#include <deep_gemm/mma/sm80/packed_rows.cuh>
#include <deep_gemm/mma/sm80/widened.cuh>

namespace deep_gemm::sm80 {

/// What a warp adds up, by its 16 rows.
template <Constant<GemmConfig> c>
using WarpSums = Sums<c>[row_pieces(c)];
template <Constant<GemmConfig> c>
using BlockSums = Accumulators<c>[row_pieces(c)];

template <Constant<GemmConfig> c, typename Sum>
DG_DEVICE void clear(Sum (&sums)[row_pieces(c)][kAccumulators<c>]) {
#pragma unroll
    for (auto& piece : sums)
#pragma unroll
        for (auto& sum : piece) sum = 0;
}

/// What the instruction takes of all rows and columns of a warp, for one step of K: 32 bytes of what is multiplied.
template <Constant<GemmConfig> c>
struct StepWords {
    static constexpr int32_t kGroups = col_groups(c);
    uint32_t rows[row_pieces(c)][4], cols[kGroups][2];

    template <typename Sum>
    DG_DEVICE void multiply(Sum (&sums)[row_pieces(c)][kAccumulators<c>], int32_t) const {
#pragma unroll
        for (int32_t piece = 0; piece < row_pieces(c); ++piece)
#pragma unroll
            for (int32_t group = 0; group < kGroups; ++group)
                sm80::multiply<c.sm80.multiplied_as>(
                    reinterpret_cast<Sum(&)[4]>(sums[piece][group * Fragment16x8::kRegisters]), rows[piece],
                    cols[group]);
    }
};

template <Constant<GemmConfig> c, bool = c.rows_operand().packed()>
struct SelectRows {
    using Type = Rows<c>;
};
template <Constant<GemmConfig> c>
struct SelectRows<c, true> {
    using Type = PackedRows<c>;
};

template <Constant<GemmConfig> c, typename Narrow, bool kWidens>
struct SelectWidened {
    using Type = Narrow;
};
template <Constant<GemmConfig> c, typename Narrow>
struct SelectWidened<c, Narrow, true> {
    using Type = Widened<c, Narrow>;
};

template <Constant<GemmConfig> c>
class StageReader {
public:
    DG_DEVICE StageReader(const Smem<c>& smem, const WarpPlace<c>& place)
        : smem_(smem), rows_(smem.rows(0), place), cols_(smem.cols(0), place) {}

    DG_DEVICE void begin_tile(const Tile&, const GemmParams&) {}

    /// At the stage behind that which is looked at.
    DG_DEVICE void look_ahead(int32_t stage) {
        constexpr int32_t kBack = 1 - c.stages;
        const int32_t stages = stage == 0 ? kBack : 1;
        rows_.look_ahead(stages * Smem<c>::kPlan.rows_bytes);
        cols_.look_ahead(stages * Smem<c>::kPlan.cols_bytes);
    }
    /// Before its first step is loaded.
    DG_DEVICE void enter() { rows_.enter(), cols_.enter(); }

    /// The first products want all columns, and the first rows.
    DG_DEVICE void load(StepWords<c>& words, int32_t step) {
        cols_.load(step, words.cols);
        rows_.load(step, words.rows);
    }

    /// What packed rows are converted by, of all of a stage.
    DG_DEVICE void begin_block(int32_t stage) { rows_.begin_block(smem_, stage); }

    DG_DEVICE void convert(StepWords<c>& words, int32_t step) {
        rows_.convert(words.rows, step);
        cols_.convert(words.cols, step);
    }

private:
    const Smem<c>& smem_;
    typename SelectWidened<c, typename SelectRows<c>::Type, widens(c, c.rows_operand())>::Type rows_;
    typename SelectWidened<c, Cols<c>, widens(c, c.cols_operand())>::Type cols_;
};

}  // namespace deep_gemm::sm80
