// The load role of SM80 and what follows it without wgmma: a stage at a time, as far ahead as there are stages.
#pragma once

#include <deep_gemm/load/sm80/boxes.cuh>
#include <deep_gemm/load/sm80/cp_async.cuh>

namespace deep_gemm::sm80 {

template <Constant<GemmConfig> c, bool = c.sm80.copy_engine>
struct StageCopies : ThreadCopies<c> {
    using ThreadCopies<c>::ThreadCopies;
};
template <Constant<GemmConfig> c>
struct StageCopies<c, true> : BoxCopies<c> {
    using BoxCopies<c>::BoxCopies;
};

/// Walks the tiles ahead of those that are multiplied, a stage at a time: a K block, or a tile without any, or that
/// there are no more.
template <Constant<GemmConfig> c>
class LoadRole {
    using Copies = StageCopies<c>;

public:
    DG_DEVICE LoadRole(const Smem<c>& smem, const GemmParams& params)
        : smem_(smem), params_(params), tiles_(params, smem.groups()), copies_(smem, params) {}

    /// What comes next, into this stage of the ring once all warps have read what it had: copied, if it is the thread's
    /// turn.
    DG_DEVICE void next(const Ring<c.stages>& ring) {
        const bool is_turn = Copies::is_turn(ring);
        if (c.sm80.copy_engine && !is_turn) return;  // it never will be
        if (is_turn) ptx::barrier_wait_polling(smem_.empty(ring.stage), ring.phase ^ 1);
        if (left_ == 0) begin_tile(ring.stage, is_turn);
        if (left_ > 0) begin_block();
        if (tile_in_each_stage(c) && is_turn && Copies::leads()) smem_.write_tile(ring.stage, tile_);
        if (is_turn) copies_.fill(ring.stage, left_ > 0, tile_, block_);
        left_ = max(left_ - 1, 0);
    }

    /// All of them.
    DG_DEVICE void run() {
        for (Ring<c.stages> ring; more(); ring.advance()) next(ring);
    }

private:
    DG_DEVICE bool more() const { return tile_.k_blocks >= 0; }

    DG_DEVICE void begin_tile(int32_t stage, bool is_turn) {
        if (more() && tiles_.next(tile_))
            tiles_.place(tile_);
        else
            tile_.k_blocks = -1;
        if (is_turn && Copies::leads()) smem_.write_tile(stage, tile_);
        left_ = max(tile_.k_blocks, 0);
        block_ = tile_.k_block - 1;
        if (left_ > 0) copies_.place(tile_, block_);
    }

    DG_DEVICE void begin_block() {
        ++block_;
        // The sum over a batch comes to other matrices on the way.
        if constexpr (c.grouping == Grouping::batch_sum)
            copies_.place(tile_, block_);
        else
            copies_.advance(tile_, block_);
    }

    const Smem<c>& smem_;
    const GemmParams& params_;
    TileScheduler<c> tiles_;
    Copies copies_;
    Tile tile_ = {};
    int32_t left_ = 0, block_ = 0;  // the last one that was copied
};

}  // namespace deep_gemm::sm80
