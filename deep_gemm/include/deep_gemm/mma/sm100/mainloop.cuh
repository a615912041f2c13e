// All K blocks of all tiles, for the warp that multiplies: one thread issues for a CTA, or for both of a pair.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/mma/sm100/instruction.cuh>
#include <deep_gemm/mma/sm100/word_sets.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/scale/words.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm100 {

template <Constant<GemmConfig> c>
class MainLoop {
public:
    DG_DEVICE MainLoop(const Smem<c>& smem, const GemmParams& params, uint32_t tensor_memory)
        : smem_(smem),
          params_(params),
          sums_(tensor_memory),
          row_words_(tensor_memory + Smem<c>::kTensor.row_scales),
          col_words_(tensor_memory + Smem<c>::kTensor.col_scales) {}

    DG_DEVICE void run() {
        TileScheduler<c> tiles(params_, smem_.groups());
        Tile tile;
        while (tiles.next(tile))
            if (tile.k_blocks > 0) multiply(tile);
    }

private:
    static constexpr int32_t kSteps = kSwizzleBytes / kStepBytes;
    static constexpr int32_t kRowBlocks = blocks_per_word(c, c.row_scales()),
                             kColBlocks = blocks_per_word(c, c.col_scales());

    DG_DEVICE void multiply(const Tile& tile) {
        ptx::barrier_wait(smem_.sums_empty(accumulators_.stage), accumulators_.phase ^ 1);
        const int32_t end = tile.k_block + tile.k_blocks, k_end = end_of_k<c>(tile, smem_.groups(), params_);
#pragma unroll 1
        for (int32_t block = tile.k_block; block < end; ++block, ring_.advance()) {
            const bool row_word = scales_in_instruction(c) && begins_word<c, kRowBlocks>(tile, block),
                       col_word = scales_in_instruction(c) && begins_word<c, kColBlocks>(tile, block);
            if (row_word) row_words_.advance();
            if (col_word) col_words_.advance();
            if constexpr (transposes_words(c))
                ptx::barrier_wait(smem_.ready(ring_.stage), ring_.phase);
            else
                ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase);
            sets_.wait(smem_);
            ptx::tensor_fence_after_sync();
            if (!ptx::elect_one()) continue;
            if (row_word) row_words_.copy(smem_.row_scales(ring_.stage));
            if (col_word) col_words_.copy(smem_.col_scales(ring_.stage));
            multiply_block(block - words_origin<c>(tile), steps_of(block, k_end), block != tile.k_block);
            commit(smem_.empty(ring_.stage), position_);
        }
        if (ptx::elect_one()) commit(smem_.sums_full(accumulators_.stage), position_);
        __syncwarp();
        accumulators_.advance();
    }

    /// Steps of a K block up to K's end: behind it there may be exponents of anything.
    static DG_DEVICE int32_t steps_of(int32_t block, int32_t k_end) {
        constexpr int32_t kStepK = step_k(c.a, c.b);
        return min(kSteps, (k_end - block * c.tile.k + kStepK - 1) / kStepK);
    }

    DG_DEVICE void multiply_block(int32_t block, int32_t steps, bool accumulate) const {
        const uint32_t sums = sums_ + accumulators_.stage * c.tile.cols;
        const OperandSteps<c, ConfigParts<c>::kRows> rows(smem_.rows(ring_.stage));
        const OperandSteps<c, ConfigParts<c>::kCols> cols(smem_.cols(ring_.stage));
#pragma unroll
        for (int32_t step = 0; step < kSteps; ++step) {
            if (step >= steps) break;
            constexpr uint32_t kDescriptor = instruction_descriptor(c);
            const uint32_t descriptor =
                scales_in_instruction(c)
                    ? with_scale_bytes(kDescriptor, RowWords::byte(block, step), ColWords::byte(block, step))
                    : kDescriptor;
            issue_mma<c>(sums, rows.at(step), cols.at(step), descriptor, row_words_.address(step),
                         col_words_.address(step), accumulate || step > 0);
        }
    }

    using RowWords = WordSets<c, ConfigParts<c>::kRowScales, kRows, c.sm100.row_blocks>;
    using ColWords = WordSets<c, ConfigParts<c>::kColScales, c.tile.cols, c.sm100.col_blocks>;

    const Smem<c>& smem_;
    const GemmParams& params_;
    uint32_t sums_;
    RowWords row_words_;
    ColWords col_words_;
    SetsInUse<c> sets_;
    ClusterPosition<c> position_;
    Ring<c.stages> ring_;
    Ring<c.sm100.accumulators> accumulators_;
};

}  // namespace deep_gemm::sm100
