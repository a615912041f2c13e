// A warp multiplies its share of a stage with the scales of both operands: nothing is promoted.
#pragma once

#include <deep_gemm/mma/sm120/instruction.cuh>
#include <deep_gemm/mma/sm120/scale_words.cuh>
#include <deep_gemm/mma/sm80/multiply.cuh>

namespace deep_gemm::sm80 {

/// What the instruction takes of all rows and columns of a warp, for one step of K.
template <Constant<GemmConfig> c>
    requires(scales_in_instruction(c))
struct StepWords<c> {
    using RowScales = sm120::ScaleWords<c, true>;
    using ColScales = sm120::ScaleWords<c, false>;
    static constexpr int32_t kGroups = col_groups(c);

    uint32_t rows[row_pieces(c)][4], cols[kGroups][2];
    typename RowScales::Words row_scales;
    typename ColScales::Words col_scales;

    DG_DEVICE void multiply(float (&sums)[row_pieces(c)][kAccumulators<c>], int32_t step) const {
#pragma unroll
        for (int32_t piece = 0; piece < row_pieces(c); ++piece)
#pragma unroll
            for (int32_t group = 0; group < kGroups; ++group)
                sm120::multiply<ConfigParts<c>::kRows, ConfigParts<c>::kCols>(
                    reinterpret_cast<float (&)[4]>(sums[piece][group * Fragment16x8::kRegisters]), rows[piece],
                    cols[group], RowScales::word(row_scales, piece), RowScales::selector(step, piece),
                    ColScales::word(col_scales, group), ColScales::selector(step, group));
    }
};

template <Constant<GemmConfig> c>
    requires(scales_in_instruction(c))
class StageReader<c> {
public:
    DG_DEVICE StageReader(const Smem<c>& smem, const WarpPlace<c>& place)
        : smem_(smem),
          k_warp_(place.k),
          rows_(smem.rows(0), place),
          cols_(smem.cols(0), place),
          row_scales_(smem.row_scales(0), place.row, place.k),
          col_scales_(smem.col_scales(0), place.col, place.k) {}

    DG_DEVICE void begin_tile(const Tile& tile, const GemmParams& params) {
        const int32_t before = tile.k_block - 1;
        part_ = (before - words_origin<c>(tile)) * c.sm80.k_warps + k_warp_;
        k_left_ = end_of_k<c>(tile, smem_.groups(), params) - (before * c.sm80.k_warps + k_warp_) * kWarpK;
    }

    /// At the stage behind that which is looked at.
    DG_DEVICE void look_ahead(int32_t stage) {
        constexpr int32_t kBack = 1 - c.stages;
        const int32_t stages = stage == 0 ? kBack : 1;
        rows_.look_ahead(stages * Smem<c>::kPlan.rows_bytes);
        cols_.look_ahead(stages * Smem<c>::kPlan.cols_bytes);
        row_scales_.look_ahead(stages * Smem<c>::kPlan.row_scale_bytes);
        col_scales_.look_ahead(stages * Smem<c>::kPlan.col_scale_bytes);
    }
    /// Before its first step is loaded.
    DG_DEVICE void enter() {
        rows_.enter(), cols_.enter(), row_scales_.enter(), col_scales_.enter();
        part_ += c.sm80.k_warps, k_left_ -= c.tile.k;
    }

    DG_DEVICE void load(StepWords<c>& words, int32_t step) {
        row_scales_.load(step, part_, k_left_, words.row_scales);
        col_scales_.load(step, part_, k_left_, words.col_scales);
        cols_.load(step, words.cols);
        rows_.load(step, words.rows);
    }

    DG_DEVICE void begin_block(int32_t) {}

    DG_DEVICE void convert(StepWords<c>& words, int32_t step) {
        rows_.convert(words.rows, step);
        cols_.convert(words.cols, step);
    }

private:
    static constexpr int32_t kWarpK = c.tile.k / c.sm80.k_warps;

    const Smem<c>& smem_;
    int32_t k_warp_, part_, k_left_;  // parts of K as warps have them, counted; of the one that was entered
    Rows<c> rows_;
    Cols<c> cols_;
    sm120::ScaleWords<c, true> row_scales_;
    sm120::ScaleWords<c, false> col_scales_;
};

}  // namespace deep_gemm::sm80
