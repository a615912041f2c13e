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
#pragma unroll 1
        for (int32_t left = tile.k_blocks;;) {
            // All warps have read the stage before this one: the wait was for them too.
            load_.copy_next();
            if (tile.k_blocks > 0) multiply(total);
            ring_.advance();
            if (--left <= 0) return;
            wait();
        }
    }

    DG_DEVICE const WarpPlace<c>& place() const { return place_; }

private:
    static constexpr int32_t kGroups = scale_groups(c), kGroupSteps = StageReader<c>::kSteps / kGroups;

    /// For a stage, which comes in the oldest of the groups of copies that are under way.
    DG_DEVICE void wait() const {
        ptx::wait_copies<c.stages - 2>();
        __syncthreads();
    }

    DG_DEVICE void multiply(WarpSums<c>& total) const {
        PackedRows<c> packed(smem_, place_, ring_.stage);
        if constexpr (c.scaled())
            multiply_groups<0>(total, packed);
        else
            multiply_steps<0, StageReader<c>::kSteps>(total, reader_, packed, ring_.stage);
    }

    template <int32_t kGroup>
    DG_DEVICE void multiply_groups(WarpSums<c>& total, PackedRows<c>& packed) const {
        BlockSums<c> partial;
        clear<c>(partial);
        multiply_steps<kGroup * kGroupSteps, kGroupSteps>(partial, reader_, packed, ring_.stage);
        promote<c>(total, partial, StageScales<c>(smem_, place_, ring_.stage, kGroup));
        if constexpr (kGroup + 1 < kGroups) multiply_groups<kGroup + 1>(total, packed);
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
    constexpr int32_t kRegisters = row_pieces(c) * kAccumulators<c>, kWarps = c.sm80.row_warps * c.sm80.col_warps;
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
