// How a warp goes through a tile's K blocks.
#pragma once

#include <deep_gemm/mma/sm80/promote.cuh>

namespace deep_gemm::sm80 {

template <GemmConfig c>
class MainLoop {
public:
    DG_DEVICE MainLoop(const Smem<c>& smem, LoadRole<c>& load) : smem_(smem), load_(load), reader_(smem, place_) {
#pragma unroll
        for (int32_t i = 0; i + 1 < c.stages; ++i) load_.copy_next();
    }

    /// The next tile; false when there are no more.
    DG_DEVICE bool next(Tile& tile) {
        wait();
        tile = smem_.read_tile(ring_.stage);
        return tile.k_blocks >= 0;
    }

    /// Its sums, of the warp's part.
    DG_DEVICE void run(WarpSums<c>& total, const Tile& tile) {
        clear<c>(total);
        if (tile.k_blocks == 0) {
            load_.copy_next();
            ring_.advance();
            return;
        }
        StepWords<c> words[2];
        reader_.load(words[0], ring_.stage, 0);
#pragma unroll 1
        for (int32_t left = tile.k_blocks; left > 0; --left) multiply_block(total, words, left > 1);
    }

    DG_DEVICE const WarpPlace<c>& place() const { return place_; }

private:
    static constexpr int32_t kSteps = StageReader<c>::kSteps, kGroupSteps = kSteps / scale_groups(c);
    static_assert(kSteps % 2 == 0, "a block ends with the words that the next one does not begin with");

    /// For a stage, which comes in the oldest of the groups of copies that are under way.
    DG_DEVICE void wait() const {
        ptx::wait_copies<c.stages - 2>();
        __syncthreads();
    }

    /// A K block, of which the first step's words are there. Each step is multiplied while the next one's words come:
    /// at last those of the next block, if there is one.
    DG_DEVICE void multiply_block(WarpSums<c>& total, StepWords<c> (&words)[2], bool more) {
        const int32_t stage = ring_.stage;
        ring_.advance();
        reader_.begin_block(stage);
        BlockSums<c> partial;
        StageScales<c> scales;
#pragma unroll
        for (int32_t i = 0; i < kSteps; ++i) {
            const bool ends_group = c.scaled() && (i + 1) % kGroupSteps == 0;
            if constexpr (c.scaled())
                if (ends_group) scales.load(smem_, place_, stage, i / kGroupSteps);
            if (i + 1 < kSteps) {
                reader_.load(words[(i + 1) % 2], stage, i + 1);
            } else if (more) {
                wait();
                reader_.load(words[0], ring_.stage, 0);
            }
            reader_.convert(words[i % 2], i);
            if constexpr (c.scaled()) {
                if (i % kGroupSteps == 0) clear<c>(partial);
                words[i % 2].multiply(partial);
                if (ends_group) promote<c>(total, partial, scales);
            } else {
                words[i % 2].multiply(total);
            }
            // Into the stage before this one: all warps had read it when they waited for this one.
            if (i == 0) load_.copy_next();
        }
    }

    const Smem<c>& smem_;
    LoadRole<c>& load_;
    WarpPlace<c> place_;
    StageReader<c> reader_;
    Ring<c.stages> ring_;
};

/// Warps that split K send their sums to the first of them. Whether this one is to store.
template <GemmConfig c>
DG_DEVICE bool add_up(WarpSums<c>& total, const Smem<c>& smem, const WarpPlace<c>& place) {
    if constexpr (c.sm80.k_warps == 1) return true;
    constexpr int32_t kRegisters = row_pieces(c) * kAccumulators<c>, kWarps = c.sm80.row_warps * c.col_warps;
    const int32_t warp = threadIdx.x / 32 % kWarps, lane = threadIdx.x % 32;
    // A register of all lanes of a warp lies together.
    const auto part = [&](int32_t sender, int32_t i) {
        return smem.parts() + (((sender - 1) * kWarps + warp) * kRegisters + i) * 128 + lane * 4;
    };
    if (place.k > 0) {
#pragma unroll
        for (int32_t i = 0; i < kRegisters; ++i)
            ptx::store_shared(part(place.k, i), total[i / kAccumulators<c>][i % kAccumulators<c>]);
    }
    __syncthreads();
    if (place.k > 0) return false;
#pragma unroll
    for (int32_t sender = 1; sender < c.sm80.k_warps; ++sender)
#pragma unroll
        for (int32_t i = 0; i < kRegisters; ++i) {
            auto& sum = total[i / kAccumulators<c>][i % kAccumulators<c>];
            if constexpr (c.sum() == Element::s32)
                sum += ptx::load_shared_int(part(sender, i));
            else
                sum += ptx::load_shared(part(sender, i));
        }
    return true;
}

}  // namespace deep_gemm::sm80
