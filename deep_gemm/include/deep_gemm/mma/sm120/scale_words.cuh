// Words of scales from a stage to registers, as the instruction takes them.
//
// A lane's word has the scales of one row: of the instruction's 16 rows two lanes of four have one each, so that a load
// brings 32 rows; of its 8 columns one lane of four, so that a load brings 32 columns.
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/mma/sm80/warp_place.cuh>

namespace deep_gemm::sm120 {

/// Which lanes have which rows, or columns, of a warp.
template <bool kRows>
struct ScaleLanes {
    static constexpr int32_t kExtent = kRows ? 16 : 8, kThreads = kRows ? 2 : 4;  // of a product; a load has so many

    /// Loads that bring the scales of so many products side by side.
    static constexpr int32_t loads(int32_t products) { return ceil_div(products, kThreads); }
    /// Where the lane's row lies, of a load that has so many products left; beyond fewer than a load has it is another
    /// lane's again.
    static DG_DEVICE int32_t row(int32_t products) {
        const int32_t lane = threadIdx.x % 32, in_quad = lane % 4;
        const int32_t product = (kRows ? in_quad / 2 : in_quad) % min(products, kThreads);
        return product * kExtent + (kRows ? in_quad % 2 * 8 : 0) + lane / 4;
    }
    static DG_DEVICE uint16_t thread(int32_t product) { return static_cast<uint16_t>(product % kThreads); }
};

/// Of one operand.
template <Constant<GemmConfig> c, bool kRows>
class ScaleWords {
    static constexpr Operand o = kRows ? c.rows_operand() : c.cols_operand();
    static constexpr Scaling kScaling = o.scaling;
    static constexpr int32_t kExtent = kRows ? c.tile.rows : c.tile.cols,
                             kProducts = kRows ? sm80::row_pieces(c) : sm80::col_groups(c);
    using Lanes = ScaleLanes<kRows>;
    /// K of the warp's part of a stage, and of a step; of a word.
    static constexpr int32_t kWarpK = c.tile.k / c.sm80.k_warps, kStepK = kWarpK / sm80::steps(c),
                             kWordK = word_k(kScaling);
    /// Whether several parts of K, of blocks or of warps, share a word: one byte is for all steps of one then.
    static constexpr bool kShared = kScaling.k >= kWarpK;
    static_assert(kShared ? kScaling.k == kWarpK : kWarpK % kWordK == 0);

public:
    using Words = uint32_t[Lanes::loads(kProducts)];

    /// `first`: the warp's first row, or column.
    DG_DEVICE ScaleWords(uint32_t scales, int32_t first, int32_t k_warp)
        : next_(scales + (k_warp * kWarpK / kWordK * kExtent + first + Lanes::row(kProducts)) * 4) {}

    DG_DEVICE void look_ahead(int32_t bytes) { next_ += bytes; }
    DG_DEVICE void enter() { at_ = next_; }

    /// Those of a step. `part`: which part of K it is, counted from where words begin; `k_left` of it.
    DG_DEVICE void load(int32_t step, int32_t part, int32_t k_left, Words& to) {
        if (step * kStepK % kWordK == 0 || (kShared && step == 0)) {
            const int32_t word = step * kStepK / kWordK;
#pragma unroll
            for (int32_t i = 0; i < Lanes::loads(kProducts); ++i) {
                const int32_t before = i * Lanes::kThreads,
                              row = before * Lanes::kExtent + Lanes::row(kProducts - before) - Lanes::row(kProducts);
                words_[i] = ptx::load_shared_int(at_ + (word * kExtent + row) * 4);
                if constexpr (kShared)
                    words_[i] = c.sm80.k_warps > 1 && k_left <= 0
                                    ? 0
                                    : __byte_perm(words_[i], 0, part % kScalesPerWord * 0x1111);
                else if (k_left < kWarpK)
                    words_[i] &= of_so_much(k_left - word * kWordK);
            }
        }
#pragma unroll
        for (int32_t i = 0; i < Lanes::loads(kProducts); ++i) to[i] = words_[i];
    }

    static DG_DEVICE uint32_t word(const Words& words, int32_t product) { return words[product / Lanes::kThreads]; }
    static DG_DEVICE ptx::ScaleSelector selector(int32_t step, int32_t product) {
        const int32_t byte = kShared ? 0 : step * kStepK / kScaling.k % kScalesPerWord;
        return {static_cast<uint16_t>(byte), Lanes::thread(product)};
    }

private:
    /// Scales behind the end of K may be anything: zero times NaN would be NaN.
    static DG_DEVICE uint32_t of_so_much(int32_t k) {
        const int32_t count = (max(k, 0) + kScaling.k - 1) / kScaling.k;
        return count >= kScalesPerWord ? ~0u : (1u << 8 * count) - 1;
    }

    uint32_t next_, at_;
    Words words_;
};

}  // namespace deep_gemm::sm120
