// How products become a warp's sums: as they are; or by groups of K with scales of their own, promoted from a second
// set of sums, or in one set that is rescaled between groups.
#pragma once

#include <deep_gemm/mma/sm80/promote.cuh>

namespace deep_gemm::sm80 {

/// Nothing is scaled, or the instruction scales.
template <Constant<GemmConfig> c>
class PlainSums {
public:
    /// The step by which all of a block is read.
    static constexpr int32_t kLastRead = steps(c) - 2;

    template <bool kBegins, bool kEnds>
    DG_DEVICE void load_scales(const Smem<c>&, const WarpPlace<c>&, int32_t, int32_t) {}
    template <bool kBegins, bool kEnds>
    DG_DEVICE void multiply(WarpSums<c>& total, const StepWords<c>& words, int32_t step) {
        words.multiply(total, step);
    }
    DG_DEVICE void load_ratios(const Smem<c>&, const WarpPlace<c>&, int32_t, int32_t, bool) {}
    DG_DEVICE void rescale(WarpSums<c>&) const {}
};

/// A group's sums are a set of their own, and promoted when it ends.
template <Constant<GemmConfig> c>
class PromotedSums {
    static constexpr int32_t kGroupSteps = steps(c) / scale_groups(c);
    /// Scales of a group are loaded a step before its last, if it has two and few scales.
    static constexpr bool kScalesAhead = kGroupSteps > 1 && !(c.row_scales().per_row() && c.col_scales().per_row());

public:
    static constexpr int32_t kLastRead = kScalesAhead ? steps(c) - 2 : steps(c) - 1;

    template <bool kBegins, bool kEnds>
    DG_DEVICE void load_scales(const Smem<c>& smem, const WarpPlace<c>& place, int32_t stage, int32_t step) {
        if (kEnds && (step + (kScalesAhead ? 2 : 1)) % kGroupSteps == 0)
            scales_.load(smem, place, stage, step / kGroupSteps);
    }
    template <bool kBegins, bool kEnds>
    DG_DEVICE void multiply(WarpSums<c>& total, const StepWords<c>& words, int32_t step) {
        if (kBegins && step % kGroupSteps == 0) clear<c>(partial_);
        words.multiply(partial_, step);
        if (kEnds && (step + 1) % kGroupSteps == 0) promote<c>(total, partial_, scales_);
    }
    DG_DEVICE void load_ratios(const Smem<c>&, const WarpPlace<c>&, int32_t, int32_t, bool) {}
    DG_DEVICE void rescale(WarpSums<c>&) const {}

private:
    BlockSums<c> partial_;
    StageScales<c> scales_;
};

/// Sums are counted in units of their row's scale of the block under way: at its end they are multiplied by the ratio
/// of this scale to the next block's, and by itself behind the last one. Lane l holds the ratios of the warp's rows l
/// and l + 32, and shuffles hand them out.
template <Constant<GemmConfig> c>
class RescaledSums {
    static_assert(scale_groups(c) == 1 && group_stages(c) == 1 && c.row_scales().per_row() &&
                  !c.col_scales().per_row());
    static constexpr int32_t kWarp = 32, kHeld = ceil_div(warp_rows(c), kWarp);

public:
    static constexpr int32_t kLastRead = steps(c);  // of scales, behind the last step: the main loop lets go then

    template <bool kBegins, bool kEnds>
    DG_DEVICE void load_scales(const Smem<c>&, const WarpPlace<c>&, int32_t, int32_t) {}
    template <bool kBegins, bool kEnds>
    DG_DEVICE void multiply(WarpSums<c>& total, const StepWords<c>& words, int32_t step) {
        words.multiply(total, step);
    }
    /// The next block's stage is there, if there are `more`.
    DG_DEVICE void load_ratios(const Smem<c>& smem, const WarpPlace<c>& place, int32_t stage, int32_t next_stage,
                               bool more) {
        load(held_, smem, place, stage);
        if (!more) return;
        float units[kHeld];
        load(units, smem, place, next_stage);
#pragma unroll
        for (int32_t i = 0; i < kHeld; ++i)
            held_[i] = units[i] == 0 ? 0 : __fdividef(held_[i], units[i]);  // all scales of a row of zeros are 0
    }
    DG_DEVICE void rescale(WarpSums<c>& total) const {
#pragma unroll
        for (int32_t piece = 0; piece < row_pieces(c); ++piece) {
            float by[2];
#pragma unroll
            for (int32_t half = 0; half < 2; ++half) {
                constexpr int32_t kRows = Fragment16x8::kHalfRows;
                const int32_t row = (piece * 2 + half) * kRows;
                by[half] =
                    __shfl_sync(0xffffffff, held_[row / kWarp], row % kWarp + threadIdx.x % kWarp / (kWarp / kRows));
            }
#pragma unroll
            for (int32_t i = 0; i < kAccumulators<c>; ++i) total[piece][i] *= by[Fragment16x8::half(i)];
        }
    }

private:
    static DG_DEVICE void load(float (&values)[kHeld], const Smem<c>& smem, const WarpPlace<c>& place, int32_t stage) {
        const int32_t row = place.row + static_cast<int32_t>(threadIdx.x % kWarp) % warp_rows(c);
#pragma unroll
        for (int32_t i = 0; i < kHeld; ++i)
            values[i] = ptx::load_shared(smem.row_scales(stage) + (row + i * kWarp) * 4);
    }

    float held_[kHeld];
};

template <Constant<GemmConfig> c, bool = promotes(c), bool = rescales(c)>
struct SelectSums {
    using Type = PlainSums<c>;
};
template <Constant<GemmConfig> c>
struct SelectSums<c, true, false> {
    using Type = PromotedSums<c>;
};
template <Constant<GemmConfig> c>
struct SelectSums<c, true, true> {
    using Type = RescaledSums<c>;
};

}  // namespace deep_gemm::sm80
