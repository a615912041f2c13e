// All K blocks of all tiles, for the warp that multiplies, where rows are packed weights that others convert into
// tensor memory (convert_rows.cuh). Sums are of a tile, or of groups along K that are promoted.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/mma/packed_rows.cuh>
#include <deep_gemm/mma/sm100/instruction.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/tile/ring.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm::sm100 {

/// The ring of stages and the buffers of converted rows, block by block.
template <Constant<GemmConfig> c>
class ConvertedBlocks {
public:
    static constexpr int32_t kSteps = block_steps(c);

    DG_DEVICE ConvertedBlocks(const Smem<c>& smem, uint32_t tensor_memory)
        : smem_(smem), rows_(tensor_memory + Smem<c>::kTensor.converted) {}

    /// Warps that convert have waited for the stage, each for that of its CTA, so that its columns are there too.
    DG_DEVICE void wait() const {
        ptx::barrier_wait(smem_.converted_full(buffer_.stage), buffer_.phase);
        ptx::tensor_fence_after_sync();
    }

    /// `kCount` steps from `first` on. One thread.
    template <int32_t kCount>
    DG_DEVICE void multiply(uint32_t sums, int32_t first, bool accumulate) const {
        constexpr uint32_t kDescriptor = instruction_descriptor(c);
        constexpr int32_t kSpanSteps = kSwizzleBytes / kStepBytes;
        const uint32_t rows = rows_ + buffer_.stage * converted_columns(c);
        const uint64_t cols = ptx::tensor_descriptor(smem_.cols(ring_.stage));
#pragma unroll
        for (int32_t i = 0; i < kCount; ++i) {
            const int32_t step = first + i;
            const int32_t distance = step / kSpanSteps * own_cols(c) * kSwizzleBytes + step % kSpanSteps * kStepBytes;
            issue_converted_mma<c>(sums, rows + step * (kStepBytes / 4), cols + (distance >> 4), kDescriptor,
                                   accumulate || i > 0);
        }
    }

    /// The thread that has multiplied.
    DG_DEVICE void let_go() const {
        commit(smem_.converted_empty(buffer_.stage), position_);
        commit(smem_.empty(ring_.stage), position_);
    }
    DG_DEVICE void hand_over(uint32_t sums_full) const { commit(sums_full, position_); }

    DG_DEVICE void advance() { ring_.advance(), buffer_.advance(); }

private:
    const Smem<c>& smem_;
    uint32_t rows_;
    ClusterPosition<c> position_;
    Ring<c.stages> ring_;
    Ring<kConvertedBuffers> buffer_;
};

/// Sums of all of a tile's K. Behind the end of K columns are zeros, and converted rows finite.
template <Constant<GemmConfig> c>
class ConvertedSums {
public:
    DG_DEVICE ConvertedSums(const Smem<c>& smem, const GemmParams& params, uint32_t tensor_memory)
        : smem_(smem), params_(params), sums_(tensor_memory), blocks_(smem, tensor_memory) {}

    DG_DEVICE void run() {
        TileScheduler<c> tiles(params_, smem_.groups());
        Tile tile;
        while (tiles.next(tile))
            if (tile.k_blocks > 0) multiply(tile);
    }

private:
    DG_DEVICE void multiply(const Tile& tile) {
        ptx::barrier_wait(smem_.sums_empty(accumulators_.stage), accumulators_.phase ^ 1);
        const uint32_t sums = sums_ + accumulators_.stage * c.tile.cols;
#pragma unroll 1
        for (int32_t i = 0; i < tile.k_blocks; ++i, blocks_.advance()) {
            blocks_.wait();
            if (!ptx::elect_one()) continue;
            blocks_.template multiply<ConvertedBlocks<c>::kSteps>(sums, 0, i > 0);
            blocks_.let_go();
        }
        if (ptx::elect_one()) blocks_.hand_over(smem_.sums_full(accumulators_.stage));
        __syncwarp();
        accumulators_.advance();
    }

    const Smem<c>& smem_;
    const GemmParams& params_;
    uint32_t sums_;
    ConvertedBlocks<c> blocks_;
    Ring<c.sm100.accumulators> accumulators_;
};

/// Sums of groups along K, each into a cleared accumulator.
template <Constant<GemmConfig> c>
class ConvertedGroupSums {
public:
    DG_DEVICE ConvertedGroupSums(const Smem<c>& smem, const GemmParams& params, uint32_t tensor_memory)
        : smem_(smem), params_(params), sums_(tensor_memory), blocks_(smem, tensor_memory) {}

    DG_DEVICE void run() {
        TileScheduler<c> tiles(params_, smem_.groups());
        Tile tile;
        while (tiles.next(tile))
#pragma unroll 1
            for (int32_t i = 0; i < tile.k_blocks; ++i, blocks_.advance()) multiply_block();
    }

private:
    static constexpr int32_t kGroups = promoted_groups(c), kSteps = ConvertedBlocks<c>::kSteps / kGroups;
    static_assert(kSteps > 0, "an instruction multiplies K of one group");

    DG_DEVICE void multiply_block() {
        blocks_.wait();
#pragma unroll
        for (int32_t group = 0; group < kGroups; ++group, accumulators_.advance()) {
            ptx::barrier_wait(smem_.sums_empty(accumulators_.stage), accumulators_.phase ^ 1);
            ptx::tensor_fence_after_sync();
            if (!ptx::elect_one()) continue;
            blocks_.template multiply<kSteps>(sums_ + accumulators_.stage * c.tile.cols, group * kSteps, false);
            if (group + 1 == kGroups) blocks_.let_go();
            blocks_.hand_over(smem_.sums_full(accumulators_.stage));
        }
        __syncwarp();
    }

    const Smem<c>& smem_;
    const GemmParams& params_;
    uint32_t sums_;
    ConvertedBlocks<c> blocks_;
    Ring<c.sm100.accumulators> accumulators_;
};

}  // namespace deep_gemm::sm100
