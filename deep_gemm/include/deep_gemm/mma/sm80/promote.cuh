// Sums of one group of K, times their scales, into those of all.
#pragma once

#include <deep_gemm/mma/sm80/multiply.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm::sm80 {

/// A thread's scales of a stage: of its rows, and of its columns. An operand without scales of a group has ones.
template <Constant<GemmConfig> c>
class StageScales {
public:
    /// Of the `group`th group of the warp's K.
    DG_DEVICE void load(const Smem<c>& smem, const WarpPlace<c>& place, int32_t stage, int32_t group) {
        const int32_t lane = threadIdx.x % 32;
        const uint32_t of_rows =
                           at<ConfigParts<c>::kRowScales, c.tile.rows>(smem.row_scales(stage), place, place.row, group),
                       of_cols =
                           at<ConfigParts<c>::kColScales, c.tile.cols>(smem.col_scales(stage), place, place.col, group);
#pragma unroll
        for (int32_t i = 0; i < kRows; ++i) {
            rows_[i] = 1;
            if constexpr (c.row_scales().per_block()) rows_[i] = ptx::load_shared(of_rows + i * 4);
            if constexpr (c.row_scales().per_row())
                rows_[i] = row_scale<c>(of_rows + (i * Fragment16x8::kHalfRows + Fragment16x8::row(lane)) * 4);
        }
#pragma unroll
        for (int32_t i = 0; i < kCols; ++i) {
            cols_[i] = make_float2(1, 1);
            if constexpr (c.col_scales().per_block()) cols_[i].x = cols_[i].y = ptx::load_shared(of_cols + i * 4);
            if constexpr (c.col_scales().per_row())
                cols_[i] = ptx::load_shared_x2(of_cols + (i * Fragment16x8::kCols + Fragment16x8::col(lane)) * 4);
        }
    }

    /// Of the `piece`th 16 rows, a thread's first row or its second.
    DG_DEVICE float row(int32_t piece, int32_t half) const {
        return rows_[kRows == 1 ? 0 : c.row_scales().per_block() ? half : piece * 2 + half];
    }
    /// Of the `group`th 8 columns, a thread's two.
    DG_DEVICE float2 cols(int32_t group) const {
        return cols_[kCols == 1 ? 0 : c.col_scales().per_block() ? group % 2 : group];
    }

private:
    /// Whether there are scales of a block of gates, and of one of ups.
    static constexpr bool kHalves = c.gate.blocks_in_halves() && c.b.scaling.per_block();
    static constexpr int32_t kOfBlocks = kHalves ? 2 : 1,
                             kRows = c.row_scales().per_row()     ? row_pieces(c) * 2
                                     : c.row_scales().per_block() ? kOfBlocks
                                                                  : 1,
                             kCols = c.col_scales().per_row()     ? StepWords<c>::kGroups
                                     : c.col_scales().per_block() ? kOfBlocks
                                                                  : 1;

    template <Constant<Scaling> scaling, int32_t kExtent>
    static DG_DEVICE uint32_t at(uint32_t scales, const WarpPlace<c>& place, int32_t first, int32_t group) {
        constexpr int32_t kEntries = scale_entries(c, scaling), kOfWarp = kEntries / c.sm80.k_warps;
        const int32_t entry = kEntries == 1 ? 0 : place.k * kOfWarp + group * kOfWarp / scale_groups(c);
        return scales + (entry * scale_rows(c, scaling, kExtent) + (!scaling.per_block() ? first
                                                                    : kHalves            ? 0
                                                                                         : first / scaling.rows)) *
                            4;
    }

    float rows_[kRows];
    float2 cols_[kCols];
};

/// In this order: what conversion took out of both operands, rows' scale times columns'.
template <Constant<GemmConfig> c>
DG_DEVICE float undone(float sum) {
    if constexpr (widens_both(c))
        return sum * Convert<Element::e4m3, Element::fp16>::kUndone;
    else
        return sum;
}

/// A row's scale, but only when a sum is there. Products of all rows' scales with all columns' would take a register
/// each: ptxas (CUDA 13.0) makes them in pairs, and ahead, for GPUs that multiply pairs.
template <typename Sum>
DG_DEVICE float when_summed(float scale, const Sum& sum) {
    static_assert(sizeof(sum) == sizeof(uint32_t));
    return __uint_as_float(ptx::when_loaded(__float_as_uint(scale), reinterpret_cast<const uint32_t&>(sum)));
}

template <Constant<GemmConfig> c>
DG_DEVICE void promote(WarpSums<c>& total, const BlockSums<c>& partial, const StageScales<c>& scales) {
    constexpr bool kPerRow = c.row_scales().per_row() && c.col_scales().per_row();
#pragma unroll
    for (int32_t piece = 0; piece < row_pieces(c); ++piece) {
        float rows[2] = {scales.row(piece, 0), scales.row(piece, 1)};
        // A thread's first sum: where it lies beyond a tensor, all that wait for it do.
        if constexpr (kPerRow)
#pragma unroll
            for (float& row : rows)
                row = piece == 0 ? when_summed(row, partial[0][0]) : when_summed(row, total[piece - 1][0]);
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) {
            const float2 cols = scales.cols(Fragment16x8::group(i));
            const float scale = rows[Fragment16x8::half(i)] * (Fragment16x8::neighbour(i) ? cols.y : cols.x);
            total[piece][i] = __fmaf_rn(undone<c>(static_cast<float>(partial[piece][i])), scale, total[piece][i]);
        }
    }
}

}  // namespace deep_gemm::sm80
