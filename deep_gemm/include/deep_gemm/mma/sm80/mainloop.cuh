// How a warp goes through a tile's K blocks.
#pragma once

#include <deep_gemm/load/sm80/load_role.cuh>
#include <deep_gemm/mma/sm80/group_sums.cuh>
#include <deep_gemm/ptx/barrier.cuh>

namespace deep_gemm::sm80 {

/// What warps that multiply do for copies: their share, a stage for each that has been read.
template <Constant<GemmConfig> c, bool = has_copy_warp(c)>
class CopyShare {
public:
    DG_DEVICE CopyShare(const Smem<c>& smem, const GemmParams& params) : load_(smem, params) {
#pragma unroll 1
        for (Ring<c.stages> ring; ring.stage + 1 < c.stages; ring.advance()) load_.next(ring);
    }
    /// This stage is read next. What is copied takes the place, two stages back, of the block before that under way.
    DG_DEVICE void next(const Ring<c.stages>& ring) {
        Ring<c.stages> copied = ring.back(2);
        copied.phase ^= 1;  // one pass later
        load_.next(copied);
    }

private:
    LoadRole<c> load_;
};

/// Nothing, where another warp copies.
template <Constant<GemmConfig> c>
class CopyShare<c, true> {
public:
    DG_DEVICE CopyShare(const Smem<c>&, const GemmParams&) {}
    DG_DEVICE void next(const Ring<c.stages>&) {}
};

template <Constant<GemmConfig> c>
class MainLoop {
public:
    DG_DEVICE MainLoop(const Smem<c>& smem, const GemmParams& params)
        : smem_(smem), params_(params), copies_(smem, params), reader_(smem, place_) {}

    /// The next tile; false when there are no more.
    DG_DEVICE bool next(Tile& tile) {
        wait();
        tile = smem_.read_tile(ring_.stage);
        return tile.k_blocks >= 0;
    }

    /// Its sums, of the warp's part.
    DG_DEVICE void run(WarpSums<c>& total, Tile& tile) {
        clear<c>(total);
        if (tile.k_blocks == 0) {
            release(ring_.stage);
            advance();
            copies_.next(ring_);
            return;
        }
        StepWords<c> words[2];
        GroupSums sums;
        reader_.begin_tile(tile, params_);
        reader_.enter();
        reader_.load(words[0], 0);
        int32_t left = tile.k_blocks;
        if constexpr (group_stages(c) == 2) {
#pragma unroll 1
            for (; left > 1; left -= 2) {
                multiply_block<true, false>(total, sums, words, true);
                multiply_block<false, true>(total, sums, words, left > 2);
            }
        }
#pragma unroll 1
        for (; left > 0; --left) multiply_block<true, true>(total, sums, words, left > 1);
        if constexpr (tile_in_each_stage(c)) {
            const int32_t last = ring_.back(1).stage;
            tile = smem_.read_tile(last);
            release(last);
        }
    }

    DG_DEVICE const WarpPlace<c>& place() const { return place_; }
    /// The same behind a tile, found anew where sums leave no registers to keep it.
    DG_DEVICE WarpPlace<c> place_behind() const { return tile_in_each_stage(c) ? WarpPlace<c>() : place_; }

private:
    using GroupSums = typename SelectSums<c>::Type;
    static constexpr int32_t kSteps = steps(c);
    static_assert(group_stages(c) <= 2);
    static_assert(kSteps % 2 == 0, "a block ends with the words that the next one does not begin with");

    DG_DEVICE void advance() {
        ring_.advance();
        reader_.look_ahead(ring_.stage);
    }

    DG_DEVICE void wait() const { ptx::barrier_wait_polling(smem_.full(ring_.stage), ring_.phase); }

    DG_DEVICE void release(int32_t stage) const {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::barrier_arrive(smem_.empty(stage));
    }

    /// A K block, of which the first step's words are there. Each step is multiplied while the next one's words come:
    /// at last those of the next block, if there is one. A group of scales begins with it, or ends.
    template <bool kBegins, bool kEnds>
    DG_DEVICE void multiply_block(WarpSums<c>& total, GroupSums& sums, StepWords<c> (&words)[2], bool more) {
        const int32_t stage = ring_.stage;
        advance();
        reader_.begin_block(stage);
#pragma unroll
        for (int32_t i = 0; i < kSteps; ++i) {
            sums.template load_scales<kBegins, kEnds>(smem_, place_, stage, i);
            if (i + 1 < kSteps) reader_.load(words[(i + 1) % 2], i + 1);
            if (i == GroupSums::kLastRead) release(stage);
            if (i + 1 == kSteps && more) {
                wait();
                reader_.enter();
                reader_.load(words[0], 0);
            }
            reader_.convert(words[i % 2], i);
            sums.template multiply<kBegins, kEnds>(total, words[i % 2], i);
            if (i == copy_step(c)) copies_.next(ring_);
        }
        sums.load_ratios(smem_, place_, stage, ring_.stage, more);
        if (tile_in_each_stage(c) && more) release(stage);  // the last one when the tile is read from it, see run()
        sums.rescale(total);
    }

    const Smem<c>& smem_;
    const GemmParams& params_;
    CopyShare<c> copies_;
    WarpPlace<c> place_;
    StageReader<c> reader_;
    Ring<c.stages> ring_;
};

template <Constant<GemmConfig> c>
DG_DEVICE void sync_math_warps() {
    constexpr int32_t kBarrier = 1;
    ptx::named_barrier_wait(kBarrier, math_threads(c));
}

/// Warps that split K send their sums to the first of them. Whether this one is to store.
template <Constant<GemmConfig> c>
DG_DEVICE bool add_up(WarpSums<c>& total, const Smem<c>& smem, const WarpPlace<c>& place) {
    if constexpr (c.sm80.k_warps == 1) return true;
    constexpr int32_t kRegisters = row_pieces(c) * kAccumulators<c>, kWarps = c.sm80.row_warps * c.col_warps;
    const int32_t warp = threadIdx.x / 32 % kWarps, lane = threadIdx.x % 32;
    // A register of all lanes of a warp lies together.
    const auto part = [&](int32_t sender, int32_t i) {
        return smem.parts() + (((sender - 1) * kWarps + warp) * kRegisters + i) * 128 + lane * 4;
    };
    sync_math_warps<c>();  // the tile's before have been read
    if (place.k > 0) {
#pragma unroll
        for (int32_t i = 0; i < kRegisters; ++i)
            ptx::store_shared(part(place.k, i), total[i / kAccumulators<c>][i % kAccumulators<c>]);
    }
    sync_math_warps<c>();
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
