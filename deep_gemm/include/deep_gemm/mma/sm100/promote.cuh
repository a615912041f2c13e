// Promotion on SM100: total += sum * row_scale * col_scale in FP32, of each group along K. A thread has one row.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/mma/packed_rows.cuh>
#include <deep_gemm/ptx/float_pairs.cuh>

namespace deep_gemm::sm100 {

/// Where an operand's scales of a stage's group stand among the stage's.
template <Constant<GemmConfig> c>
constexpr int32_t scale_entry_of(const Scaling& scaling, int32_t group) {
    return group * (c.tile.k / promoted_groups(c)) / scaling.k;
}

template <Constant<GemmConfig> c>
DG_DEVICE float row_scale(const Smem<c>& smem, int32_t stage, int32_t group) {
    constexpr Scaling kScaling = c.row_scales();
    if constexpr (!is_promoted(kScaling))
        return 1;
    else if constexpr (kScaling.per_block() && scale_parts(c) > 1)  // or of two: gates' and ups'
        return ptx::load_shared(smem.block_scales(stage) + thread_row() / kGateCols % 2 * 4);
    else if constexpr (kScaling.per_block())
        return ptx::load_shared(smem.block_scales(stage));  // a tile has the rows of one block
    else
        return deep_gemm::row_scale<c>(smem.row_scales(stage) +
                                       (scale_entry_of<c>(kScaling, group) * row_scale_places(c) +
                                        (c.swap_ab ? c.gate.place_of_scale(thread_row(), row_scale_places(c))
                                                   : thread_row())) *
                                           4);
}

/// One group's factors of a thread's sums where columns share scales in runs: all are read at once.
template <Constant<GemmConfig> c>
class RunFactors {
public:
    static constexpr bool kReadsLate = false;

    DG_DEVICE RunFactors(const Smem<c>& smem, int32_t stage, int32_t group) {
        const float row = row_scale<c>(smem, stage, group);
#pragma unroll
        for (int32_t unit = 0; unit < kUnits; ++unit) {
            if constexpr (is_promoted(c.col_scales())) {
                of_[unit] =
                    row * ptx::load_shared(smem.block_scales(stage) + run(first_store_col<c>() + unit * kUnit) * 4);
            } else {
                of_[unit] = row;
            }
        }
    }

    /// Of four columns, counted from the thread's first one.
    DG_DEVICE float4 four(int32_t col) const {
        const float factor = of_[is_promoted(c.col_scales()) ? col / kUnit : 0];
        return make_float4(factor, factor, factor, factor);
    }

private:
    static constexpr int32_t kUnit = scale_parts(c) > 1 ? kGateCols : 16,
                             kUnits = is_promoted(c.col_scales()) ? store_cols(c) / kUnit : 1;
    static_assert(scale_run(c.tile.cols) % kUnit == 0);

    /// Of a column in the tile.
    static DG_DEVICE int32_t run(int32_t col) {
        if constexpr (scale_parts(c) == 1) return col / scale_run(c.tile.cols);
        const int32_t half = scale_extent(c), runs = half / scale_run(half), place = Gated::in_halves(col, 2 * half);
        return place / half * runs + place % half / scale_run(half);
    }

    float of_[kUnits];
};

/// The same where each column has a scale: columns' are read when they are needed.
template <Constant<GemmConfig> c>
class ColumnFactors {
public:
    static constexpr bool kReadsLate = true;

    DG_DEVICE ColumnFactors(const Smem<c>& smem, int32_t stage, int32_t group)
        : row_(row_scale<c>(smem, stage, group)),
          cols_(smem.col_scales(stage) + (scale_entry_of<c>(c.col_scales(), group) * kPlaces +
                                          first_store_col<c>() / (kGated ? scale_parts(c) : 1)) *
                                             4) {}

    DG_DEVICE float4 four(int32_t col) const {
        const float4 cols = four_scales(col);
        const float2 row = make_float2(row_, row_), low = ptx::multiply_x2(row, make_float2(cols.x, cols.y)),
                     high = ptx::multiply_x2(row, make_float2(cols.z, cols.w));
        return make_float4(low.x, low.y, high.x, high.y);
    }

private:
    static constexpr bool kGated = c.gate.joins() && !c.swap_ab;
    static constexpr int32_t kPlaces = col_scale_places(c);

    /// Gates of halves lie side by side, and so do their ups; else a gate and its up do.
    DG_DEVICE float4 four_scales(int32_t col) const {
        if constexpr (!kGated) return ptx::load_shared_x4(cols_ + col * 4);
        const bool up = col / kGateCols % 2 != 0;
        const uint32_t own = cols_ + c.gate.place_of_scale(col, kPlaces) * 4, first = own - up * 4;
        if (c.gate.joins_halves() && c.gate.first_up() != 0)
            return make_float4(ptx::load_shared(own), ptx::load_shared(own + 4), ptx::load_shared(own + 8),
                               ptx::load_shared(own + 12));
        if constexpr (c.gate.joins_halves()) return ptx::load_shared_x4(own);
        const float4 low = ptx::load_shared_x4(first), high = ptx::load_shared_x4(first + 16);
        return up ? make_float4(low.y, low.w, high.y, high.w) : make_float4(low.x, low.z, high.x, high.z);
    }

    float row_;
    uint32_t cols_;
};

template <Constant<GemmConfig> c, bool = is_promoted(c.col_scales()) && c.col_scales().per_row()>
struct SelectFactors {
    using Type = RunFactors<c>;
};
template <Constant<GemmConfig> c>
struct SelectFactors<c, true> {
    using Type = ColumnFactors<c>;
};

/// A word of tensor memory as FP32.
template <Constant<GemmConfig> c>
DG_DEVICE float sum_of_word(uint32_t word) {
    if constexpr (c.block_sum() == Element::s32)
        return static_cast<float>(static_cast<int32_t>(word));
    else
        return __uint_as_float(word);
}

/// Columns from `first` on.
template <Constant<GemmConfig> c, int32_t kCols, typename Factors>
DG_DEVICE void promote(float* totals, const uint32_t (&sums)[kCols], const Factors& factors, int32_t first) {
#pragma unroll
    for (int32_t i = 0; i < kCols; i += 4) {
        const float4 factor = factors.four(first + i);
        float* const total = totals + first + i;
        const float2 low = ptx::fma_x2(make_float2(sum_of_word<c>(sums[i]), sum_of_word<c>(sums[i + 1])),
                                       make_float2(factor.x, factor.y), make_float2(total[0], total[1])),
                     high = ptx::fma_x2(make_float2(sum_of_word<c>(sums[i + 2]), sum_of_word<c>(sums[i + 3])),
                                        make_float2(factor.z, factor.w), make_float2(total[2], total[3]));
        total[0] = low.x, total[1] = low.y, total[2] = high.x, total[3] = high.y;
    }
}

}  // namespace deep_gemm::sm100
