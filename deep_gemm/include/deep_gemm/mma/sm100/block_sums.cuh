// All K blocks of all tiles where sums of groups along K are promoted by others: accumulators are taken in turn by
// groups, not by tiles.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/mma/sm100/instruction.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/tile/ring.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm::sm100 {

/// The multiplying warp. Behind the end of K operands are zeros and scales finite, so that every step is issued.
template <Constant<GemmConfig> c>
class BlockSums {
public:
    DG_DEVICE BlockSums(const Smem<c>& smem, const GemmParams& params, uint32_t tensor_memory)
        : smem_(smem), params_(params), sums_(tensor_memory) {}

    DG_DEVICE void run() {
        TileScheduler<c> tiles(params_, smem_.groups());
        Tile tile;
        while (tiles.next(tile))
#pragma unroll 1
            for (int32_t i = 0; i < tile.k_blocks; ++i, ring_.advance()) multiply_block();
    }

private:
    static constexpr int32_t kGroups = promoted_groups(c), kSteps = kSwizzleBytes / kStepBytes / kGroups;
    static_assert(kSteps > 0, "an instruction multiplies K of one group");

    DG_DEVICE void multiply_block() {
        ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase);
#pragma unroll
        for (int32_t group = 0; group < kGroups; ++group, accumulators_.advance()) {
            ptx::barrier_wait(smem_.sums_empty(accumulators_.stage), accumulators_.phase ^ 1);
            ptx::tensor_fence_after_sync();
            if (!ptx::elect_one()) continue;
            multiply_group(group);
            if (group + 1 == kGroups) commit(smem_.empty(ring_.stage), position_);
            commit(smem_.sums_full(accumulators_.stage), position_);
        }
        __syncwarp();
    }

    /// Into a cleared accumulator.
    DG_DEVICE void multiply_group(int32_t group) const {
        const uint32_t sums = sums_ + accumulators_.stage * c.tile.cols;
        const OperandSteps<c, ConfigParts<c>::kRows> rows(smem_.rows(ring_.stage));
        const OperandSteps<c, ConfigParts<c>::kCols> cols(smem_.cols(ring_.stage));
#pragma unroll
        for (int32_t i = 0; i < kSteps; ++i) {
            constexpr uint32_t kDescriptor = instruction_descriptor(c);
            const int32_t step = group * kSteps + i;
            issue_mma<c>(sums, rows.at(step), cols.at(step), kDescriptor, 0, 0, i > 0);
        }
    }

    const Smem<c>& smem_;
    const GemmParams& params_;
    uint32_t sums_;
    ClusterPosition<c> position_;
    Ring<c.stages> ring_;
    Ring<c.sm100.accumulators> accumulators_;
};

}  // namespace deep_gemm::sm100
