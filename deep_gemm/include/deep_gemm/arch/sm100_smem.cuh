// Addresses of the shared-memory plan, for one CTA.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>
#include <deep_gemm/arch/stage_smem.cuh>

namespace deep_gemm::sm100 {

/// Of a shared-memory address of a pair: the same place in the leader. The CTA's rank lies in the bits from 24 on.
DG_DEVICE uint32_t in_leader(uint32_t address) { return address & 0xfeffffffu; }

/// Which of the four warps that reach all rows of a CTA, and the row of its tile, a thread of a store warp has.
DG_DEVICE int32_t tensor_warp() { return static_cast<int32_t>(threadIdx.x) / 32 % 4; }
DG_DEVICE int32_t thread_row() { return static_cast<int32_t>(threadIdx.x) % kRows; }

/// The first of the tile's columns that its warpgroup has.
template <Constant<GemmConfig> c>
DG_DEVICE int32_t first_store_col() {
    return store_warpgroups(c) == 1 ? 0 : static_cast<int32_t>(threadIdx.x) / 128 * store_cols(c);
}

template <Constant<GemmConfig> c>
struct Smem : StageSmem<c, plan_smem(c), kSmemAlignment> {
    using Base = typename Smem::StageSmem;
    using Base::Base, Base::base, Base::kPlan;

    static constexpr TensorPlan kTensor = plan_tensor_memory(c);
    static_assert(kPlan.bytes <= kMaxSmemBytes, "tile does not fit shared memory");
    static_assert(kTensor.columns <= kTensorColumns, "tile does not fit tensor memory");
    static_assert(kTensor.sets > 0, "no room for words of scales in tensor memory");

    DG_DEVICE uint32_t staging(int warp) const { return base + kPlan.staging + warp * staging_bytes_per_warp(c); }
    DG_DEVICE uint32_t block_scales(int stage) const {
        return base + kPlan.block_scales + stage * kPlan.block_scale_bytes;
    }

    /// A stage's operands have come; nobody reads it any more; its words are in the order of tensor memory, or its FP32
    /// scales, which no product waits for, have come.
    DG_DEVICE uint32_t full(int stage) const { return barrier(stage); }
    DG_DEVICE uint32_t empty(int stage) const { return barrier(c.stages + stage); }
    DG_DEVICE uint32_t ready(int stage) const { return barrier(2 * c.stages + stage); }
    DG_DEVICE uint32_t scales_full(int stage) const { return barrier(2 * c.stages + stage); }
    /// An accumulator holds sums, of a tile or of a group along K; they have been read.
    DG_DEVICE uint32_t sums_full(int accumulator) const { return barrier(3 * c.stages + accumulator); }
    DG_DEVICE uint32_t sums_empty(int accumulator) const {
        return barrier(3 * c.stages + c.sm100.accumulators + accumulator);
    }
    /// Of a tile, which rows are padding; when they lie there, and when all store warps have read them (marks_padding).
    DG_DEVICE uint32_t padding() const { return base + kPlan.padding; }
    /// Largest magnitudes, where several warps have columns that share a scale.
    DG_DEVICE uint32_t exchange(int buffer) const {
        return base + kPlan.exchange + buffer * maxima_bytes(c, piece_d_cols(c));
    }
    /// And whether all have sent theirs.
    DG_DEVICE uint32_t maxima_barrier(int buffer) const {
        return barrier(3 * c.stages + 2 * c.sm100.accumulators + 2 + part_barriers(c) + convert_barriers(c) + buffer);
    }
    DG_DEVICE uint32_t padding_known() const { return barrier(3 * c.stages + 2 * c.sm100.accumulators); }
    DG_DEVICE uint32_t padding_read() const { return padding_known() + 8; }

    /// What a store warp is sent of its `index`th own chunk by one of the others, and the barrier that counts all of
    /// it.
    DG_DEVICE uint32_t part(int warp, int sender, int index) const {
        return base + kPlan.parts + warp * parts_bytes_per_warp(c) + (sender * own_chunks(c) + index) * part_bytes(c);
    }
    DG_DEVICE uint32_t parts_barrier(int warp) const {
        return barrier(3 * c.stages + 2 * c.sm100.accumulators + 2 + warp);
    }

    /// A buffer has a K block's converted rows; they have been multiplied.
    DG_DEVICE uint32_t converted_full(int buffer) const {
        return barrier(3 * c.stages + 2 * c.sm100.accumulators + 2 + part_barriers(c) + buffer);
    }
    DG_DEVICE uint32_t converted_empty(int buffer) const { return converted_full(kConvertedBuffers + buffer); }

    /// Where tensor memory was allocated.
    DG_DEVICE uint32_t tensor_address() const { return base + kPlan.tensor_address; }

private:
    DG_DEVICE uint32_t barrier(int index) const { return base + kPlan.barriers + index * 8; }
};

}  // namespace deep_gemm::sm100
