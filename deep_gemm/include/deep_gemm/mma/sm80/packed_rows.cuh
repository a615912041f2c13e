// A warp's rows of a stage where they are packed weights: read, and converted to what the instruction takes, or to
// what its other operand lies as.
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/mma/packed_rows.cuh>
#include <deep_gemm/mma/sm80/warp_place.cuh>

namespace deep_gemm::sm80 {

/// Of what rows have beside codes in a stage, that of the block which is a warp's along K.
template <Constant<GemmConfig> c>
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

/// While units of 16 bytes a thread are converted, the next ones are on their way.
template <Constant<GemmConfig> c>
class PackedRows {
public:
    using Words = uint32_t[row_pieces(c)][4];

    DG_DEVICE PackedRows(uint32_t stage, const WarpPlace<c>& place) : row_(place.row), k_warp_(place.k) {
        // Blocks of the same rows follow each other, as far as the tile has their rows.
        const int32_t block = place.row / kPackedRows * c.sm80.k_warps + place.k,
                      piece = place.row % kPackedRows / Fragment16x8::kRows;
        next_ = stage + block * kBlockBytes + piece * Units::kWarpBytes + threadIdx.x % 32 * Units::kThreadBytes;
    }

    /// Codes of all the warp's rows, of the steps that begin with this one.
    DG_DEVICE void look_ahead(int32_t bytes) { next_ += bytes; }
    DG_DEVICE void enter() { at_ = next_; }
    DG_DEVICE void load(int32_t step, Words&) {
        if (step % Units::kSteps != 0) return;
        const int32_t unit = step / Units::kSteps;
#pragma unroll
        for (int32_t i = 0; i < row_pieces(c); ++i) {
            const int4 four = ptx::load_shared_int_x4(at_ + unit * kUnitBytes + i * Units::kWarpBytes);
            int32_t (&codes)[4] = codes_[unit % 2][i];
            codes[0] = four.x, codes[1] = four.y, codes[2] = four.z, codes[3] = four.w;
        }
    }

    DG_DEVICE void begin_block(const Smem<c>& smem, int32_t stage) {
#pragma unroll
        for (int32_t i = 0; i < row_pieces(c); ++i)
            conversions_[i] = Conversion<c>(BlockOfStage<c>{smem, k_warp_}, stage, row_ + i * Fragment16x8::kRows);
    }

    DG_DEVICE void convert(Words& to, int32_t step) const {
#pragma unroll
        for (int32_t i = 0; i < row_pieces(c); ++i)
            conversions_[i].run(codes_[step / Units::kSteps % 2][i] + step % Units::kSteps * Units::kStepWords, step,
                                to[i]);
    }

private:
    using Units = PackedUnits<c>;
    static constexpr int32_t kUnitBytes = packed_unit_bytes(c.tile.rows), kBlockBytes = Units::kCount * kUnitBytes;
    static_assert(Units::kCount % 2 == 0, "a block ends with the codes that the next one does not begin with");
    static_assert(kPackedRows % warp_rows(c) == 0, "a warp's rows are of one block");

    int32_t row_, k_warp_;
    uint32_t next_, at_;
    int32_t codes_[2][row_pieces(c)][4];
    Conversion<c> conversions_[row_pieces(c)];
};

}  // namespace deep_gemm::sm80
