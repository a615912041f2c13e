// The role that converts packed weights: from a stage's words through registers to tensor memory, where the instruction
// finds its rows.
//
// Packed blocks are in the order of a register fragment (mma/packed_rows.cuh). Of each step of K, 32 bytes, a thread
// has four words: of row lane / 4, those 4 (lane % 4) bytes along K; of the row 8 further on; and of both 16 bytes
// further on. Register by register that is the shape 16x128b of tcgen05.st.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/mma/packed_rows.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/tcgen05.cuh>
#include <deep_gemm/tile/cluster_position.cuh>
#include <deep_gemm/tile/ring.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm::sm100 {

/// What rows have beside codes, for a warp that converts 16 of them.
template <Constant<GemmConfig> c>
struct RowWords {
    const Smem<c>& smem;

    DG_DEVICE uint32_t zeros(int stage) const { return smem.zeros(stage); }
    DG_DEVICE uint32_t row_scales(int stage) const { return smem.row_scales(stage); }
    /// Of the thread's first row of those from `first_row` on.
    static DG_DEVICE uint32_t thread_row_word(uint32_t words, int32_t first_row) {
        return words + (first_row + ptx::lane() / 4) * 4;
    }
};

/// Four warps of each CTA, each for the lanes of tensor memory that it reaches: two fragments of 16 rows.
template <Constant<GemmConfig> c>
class ConvertRole {
public:
    DG_DEVICE ConvertRole(const Smem<c>& smem, const GemmParams& params, uint32_t tensor_memory)
        : smem_(smem),
          params_(params),
          first_row_(tensor_warp() * kWarpRows),
          buffers_(tensor_memory + Smem<c>::kTensor.converted + (first_row_ << 16)) {}

    DG_DEVICE void run() {
        TileScheduler<c> tiles(params_, smem_.groups());
        Tile tile;
        while (tiles.next(tile))
#pragma unroll 1
            for (int32_t i = 0; i < tile.k_blocks; ++i, ring_.advance(), buffer_.advance()) convert_block();
        if constexpr (mma_ctas(c) > 1) drain();
    }

private:
    using Units = PackedUnits<c>;
    static constexpr Element kElement = c.rows_operand().element;
    static constexpr int32_t kFragmentRows = Fragment16x8::kRows, kWords = block_steps(c) * 4;

    DG_DEVICE void convert_block() {
        ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase);
        if constexpr (folds_exponents(kElement)) ptx::barrier_wait(smem_.scales_full(ring_.stage), ring_.phase);
        ptx::barrier_wait(smem_.converted_empty(buffer_.stage), buffer_.phase ^ 1);
        ptx::tensor_fence_after_sync();
#pragma unroll 1
        for (int32_t row = 0; row < kWarpRows; row += kFragmentRows) {
            uint32_t words[kWords];
            convert(words, first_row_ + row);
            ptx::store_tensor_memory_16(buffers_ + buffer_.stage * converted_columns(c) + (row << 16), words);
        }
        ptx::wait_tensor_stores();
        ptx::tensor_fence_before_sync();
        __syncwarp();
        if (ptx::lane() == 0) arrive(smem_.converted_full(buffer_.stage));
    }

    /// At this CTA's barrier, or that of the pair's leader, which multiplies.
    DG_DEVICE void arrive(uint32_t barrier) const {
        if constexpr (mma_ctas(c) > 1)
            ptx::barrier_arrive_remote(barrier, ClusterPosition<c>::rank(0, position_.col, position_.k));
        else
            ptx::barrier_arrive(barrier);
    }

    /// Until all buffers are free again: commits then arrive at this CTA's barriers no more.
    DG_DEVICE void drain() {
#pragma unroll 1
        for (int32_t i = 0; i < kConvertedBuffers; ++i, buffer_.advance())
            ptx::barrier_wait(smem_.converted_empty(buffer_.stage), buffer_.phase ^ 1);
    }

    /// 16 rows of the tile, from `row` on.
    DG_DEVICE void convert(uint32_t (&words)[kWords], int32_t row) const {
        const Conversion<c> conversion(RowWords<c>{smem_}, ring_.stage, row);
        const uint32_t mine = smem_.rows(ring_.stage) + row / kPackedRows * packed_block_bytes(kElement) +
                              row % kPackedRows / kFragmentRows * Units::kWarpBytes + ptx::lane() * Units::kThreadBytes;
#pragma unroll
        for (int32_t i = 0; i < Units::kCount; ++i) {
            const int4 unit = ptx::load_shared_int_x4(mine + i * Units::kBytes);
            const int32_t of[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
            for (int32_t j = 0; j < Units::kSteps; ++j) {
                const int32_t step = i * Units::kSteps + j;
                uint32_t to[4];
                conversion.run(of + j * Units::kStepWords, step, to);
#pragma unroll
                for (int32_t k = 0; k < 4; ++k) words[step * 4 + k] = to[k];
            }
        }
    }

    const Smem<c>& smem_;
    const GemmParams& params_;
    int32_t first_row_;
    uint32_t buffers_;
    ClusterPosition<c> position_;
    Ring<c.stages> ring_;
    Ring<kConvertedBuffers> buffer_;
};

}  // namespace deep_gemm::sm100
