// A warp's rows of a stage where they are packed weights: read, and converted to what the instruction takes, or to
// what its other operand lies as.
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/mma/packed_rows.cuh>
#include <deep_gemm/mma/sm80/place.cuh>

namespace deep_gemm::sm80 {

/// Of what rows have beside codes in a stage, that of the block which is a warp's along K.
template <GemmConfig c>
struct BlockOfStage {
    const Smem<c>& smem;
    int32_t k_warp;

    DG_DEVICE uint32_t zeros(int32_t stage) const { return smem.zeros(stage) + before(zero_entries(c)); }
    DG_DEVICE uint32_t row_scales(int32_t stage) const {
        return smem.row_scales(stage) + before(scale_entries(c, c.row_scales()));
    }
    /// The thread's first row of the warp's 16, which begin at `first_row`.
    static DG_DEVICE uint32_t thread_row_word(uint32_t words, int32_t first_row) {
        return words + (first_row + Fragment16x8::row(threadIdx.x % 32)) * 4;
    }

private:
    /// One entry is for all of K.
    DG_DEVICE int32_t before(int32_t entries) const { return k_warp * (entries / c.sm80.k_warps) * c.tile.rows * 4; }
};

template <GemmConfig c, bool = c.rows_operand().packed()>
class PackedRows {
public:
    DG_DEVICE PackedRows(const Smem<c>&, const WarpPlace<c>&, int32_t) {}
};

/// While a unit of 16 bytes a thread is converted, the next one is on its way, where sums leave registers for it.
template <GemmConfig c>
class PackedRows<c, true> {
public:
    DG_DEVICE PackedRows(const Smem<c>& smem, const WarpPlace<c>& place, int32_t stage) {
        // Blocks of the same rows follow each other.
        const int32_t block = place.row / kPackedRows * c.sm80.k_warps + place.k,
                      piece = place.row % kPackedRows / Fragment16x8::kRows;
        codes_ =
            smem.rows(stage) + block * kBlockBytes + piece * Units::kWarpBytes + threadIdx.x % 32 * Units::kThreadBytes;
        if constexpr (kAhead > 0) load(0);
#pragma unroll
        for (int32_t i = 0; i < row_pieces(c); ++i)
            conversions_[i] = Conversion<c>(BlockOfStage<c>{smem, place.k}, stage, place.row + i * Fragment16x8::kRows);
    }

    /// Of all the warp's rows, in the order of K.
    DG_DEVICE void convert(int32_t step, uint32_t (&to)[row_pieces(c)][4]) {
        const int32_t unit = step / Units::kSteps;
        if (step % Units::kSteps == 0 && unit + kAhead < Units::kCount) load(unit + kAhead);
#pragma unroll
        for (int32_t i = 0; i < row_pieces(c); ++i)
            conversions_[i].run(words_[unit % (kAhead + 1)][i] + step % Units::kSteps * Units::kStepWords, step, to[i]);
    }

private:
    using Units = PackedUnits<c>;
    static constexpr int32_t kBlockBytes = packed_block_bytes(c.rows_operand().element), kAhead = c.scaled() ? 0 : 1;
    static_assert(warp_rows(c) <= kPackedRows && kPackedRows % warp_rows(c) == 0, "a warp's rows are of one block");

    DG_DEVICE void load(int32_t unit) {
#pragma unroll
        for (int32_t i = 0; i < row_pieces(c); ++i) {
            const int4 four = ptx::load_shared_int_x4(codes_ + unit * Units::kBytes + i * Units::kWarpBytes);
            int32_t (&words)[4] = words_[unit % (kAhead + 1)][i];
            words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
        }
    }

    uint32_t codes_;
    int32_t words_[kAhead + 1][row_pieces(c)][4];
    Conversion<c> conversions_[row_pieces(c)];
};

}  // namespace deep_gemm::sm80
