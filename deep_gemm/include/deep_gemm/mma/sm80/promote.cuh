// Sums of one group of K, times their scales, into those of all.
#pragma once

#include <deep_gemm/mma/sm80/multiply.cuh>

namespace deep_gemm::sm80 {

/// What a thread reads of a stage's scales: of its rows, and of its columns. An operand without scales of a group has
/// ones.
template <GemmConfig c>
class StageScales {
public:
    DG_DEVICE StageScales(const Smem<c>& smem, const WarpPlace<c>& place, int32_t stage, int32_t group)
        : row_scales_(at<c.row_scales(), c.tile.rows>(smem.row_scales(stage), place.row,
                                                      entry(place, c.row_scales(), group))),
          col_scales_(at<c.col_scales(), c.tile.cols>(smem.col_scales(stage), place.col,
                                                      entry(place, c.col_scales(), group))) {}

    /// Of the `piece`th 16 rows, a thread's first row or its second.
    DG_DEVICE float row(int32_t piece, int32_t half) const {
        const int32_t lane = threadIdx.x % 32;
        const int32_t row = piece * Fragment16x8::kRows + half * Fragment16x8::kHalfRows + Fragment16x8::row(lane);
        if constexpr (c.rows_operand().packed() && c.row_scales().per_row())
            return row_scale<c>(row_scales_ + row * 4);
        else
            return load<c.row_scales()>(row_scales_, row);
    }

    /// Of the `group`th 8 columns, a thread's two.
    DG_DEVICE float2 cols(int32_t group) const {
        const int32_t lane = threadIdx.x % 32, first = group * Fragment16x8::kCols + Fragment16x8::col(lane);
        if constexpr (c.col_scales().per_row()) return ptx::load_shared_x2(col_scales_ + first * 4);
        const float all = load<c.col_scales()>(col_scales_, first);
        return make_float2(all, all);
    }

private:
    /// The `group`th group of the warp's K.
    static DG_DEVICE int32_t entry(const WarpPlace<c>& place, const Scaling& scaling, int32_t group) {
        const int32_t entries = scale_entries(c, scaling);
        return entries == 1
                   ? 0
                   : place.k * (entries / c.sm80.k_warps) + group * (entries / c.sm80.k_warps) / scale_groups(c);
    }

    template <Scaling scaling, int32_t kExtent>
    static DG_DEVICE uint32_t at(uint32_t scales, int32_t first, int32_t entry) {
        const int32_t row = scaling.per_block() ? first / scaling.rows : first;
        return scales + (entry * scale_rows(scaling, kExtent) + row) * 4;
    }

    template <Scaling scaling>
    static DG_DEVICE float load(uint32_t scales, int32_t row) {
        if constexpr (scaling.per_row()) return ptx::load_shared(scales + row * 4);
        if constexpr (scaling.per_block()) return ptx::load_shared(scales);
        return 1;
    }

    uint32_t row_scales_, col_scales_;
};

/// In this order: what conversion took out of operands, rows' scale times columns'.
template <GemmConfig c>
DG_DEVICE float undone(float sum) {
    if constexpr (converts(c))
        return sum * Convert<c.a.element, c.sm80.multiplied_as>::kUndone;
    else
        return sum;
}

template <GemmConfig c>
DG_DEVICE void promote(WarpSums<c>& total, const BlockSums<c>& partial, const StageScales<c>& scales) {
#pragma unroll
    for (int32_t group = 0; group < StepWords<c>::kGroups; ++group) {
        const float2 cols = scales.cols(group);
#pragma unroll
        for (int32_t piece = 0; piece < row_pieces(c); ++piece) {
#pragma unroll
            for (int32_t half = 0; half < 2; ++half) {
                const float row = scales.row(piece, half);
                const int32_t i = Fragment16x8::pair(group, half);
                total[piece][i] =
                    __fmaf_rn(undone<c>(static_cast<float>(partial[piece][i])), row * cols.x, total[piece][i]);
                total[piece][i + 1] =
                    __fmaf_rn(undone<c>(static_cast<float>(partial[piece][i + 1])), row * cols.y, total[piece][i + 1]);
            }
        }
    }
}

}  // namespace deep_gemm::sm80
