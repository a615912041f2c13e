// The ring's stages as one math warpgroup goes through them: what all ways through a tile's K blocks share
// (mainloop.cuh).
#pragma once

#include <deep_gemm/mma/sm90/issue_order.cuh>
#include <deep_gemm/mma/sm90/multiply.cuh>
#include <deep_gemm/mma/sm90/scales.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm {

/// Of 64 rows each.
template <Constant<GemmConfig> c>
inline constexpr int32_t kSubtiles = warpgroup_rows(c) / kWgmmaRows;

/// The sums of a warpgroup's rows.
template <Constant<GemmConfig> c>
using Totals = Sums<c>[kSubtiles<c>];

/// 64 rows of a K block between the issue of their wgmma and the end of their promotion.
template <Constant<GemmConfig> c>
struct Block {
    Accumulators<c> partial;
    Fragments<c> rows;
    typename SelectScales<c>::Type scales;
    int32_t stage;
};

template <Constant<GemmConfig> c>
class Stages {
public:
    DG_DEVICE Stages(const Smem<c>& smem, int32_t warpgroup)
        : smem_(smem), order_(warpgroup), first_row_(first_row(c, warpgroup)) {
        // A stage belongs to one turn: who waits for its next phase has seen the one before. (Otherwise a barrier whose
        // earlier phase is still open, copies being late, looks as if the awaited one were over.)
        static_assert(c.stages % c.split_k.warpgroups == 0);
        if constexpr (c.split_k.warpgroups > 1) ring_.advance(warpgroup / row_warpgroups(c));
    }

    /// This warpgroup's first row in the tile.
    DG_DEVICE int32_t first_row_in_tile() const { return first_row_; }

    DG_DEVICE int32_t current() const { return ring_.stage; }

    /// To this warpgroup's next K block.
    DG_DEVICE void advance() {
        if constexpr (c.split_k.warpgroups == 1)
            ring_.advance();
        else
            ring_.advance(c.split_k.warpgroups);
    }

    DG_DEVICE void wait_full() const { ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase); }

    /// Until it is this warpgroup's turn to issue.
    DG_DEVICE void wait_for_order() const { order_.wait(); }

    /// After the last tile.
    DG_DEVICE void end() const { order_.end(); }

    /// The place in the ring is to be computed after this.
    DG_DEVICE void forget_stage() { ptx::forget(ring_.stage); }

    /// This warp's turn with a stage is over: tell every CTA that may copy into it.
    ///
    /// All that the warp has loaded from the stage must have come. The hardware does not order loads and the arrival:
    /// behind loads of other warps (of C, say) one may take so long that the copy engine replaces what it is to read
    /// (docs/kernels/copy.md). `read` is of loads that may still be under way; those from before wgmma that
    /// are over are not. tests/kernels/test_every_kernel.py looks for arrivals that come too early.
    DG_DEVICE void release(int32_t stage, uint32_t read = 0) const {
        const uint32_t barrier = ptx::when_loaded(smem_.empty(stage), read);
        const int32_t lane = threadIdx.x % 32;
        __syncwarp();
        if constexpr (!c.multicasts()) {
            if (lane == 0) ptx::barrier_arrive(barrier);
        } else {
            if (lane < position_.kSources) ptx::barrier_arrive_remote(barrier, position_.source_rank(lane));
        }
    }

    DG_DEVICE void load_scales(Block<c>& block, int32_t subtile) const {
        block.scales.load(smem_, ring_.stage, first_row_ + subtile * subtile_step(c));
    }

    DG_DEVICE void load_scales(BlockScales<c>& scales, int32_t stage) const { scales.load(smem_, stage, first_row_); }

    /// Rows that are multiplied from registers: convert them.
    DG_DEVICE void convert(Block<c>& block, int32_t subtile) const { load_rows(block.rows, subtile); }

    /// Issue the wgmma of 64 rows, into sums of this block alone, and let others issue theirs.
    DG_DEVICE void multiply(Block<c>& block, int32_t subtile) const {
        issue(block, subtile);
        pass(block);
    }

    DG_DEVICE void pass(Block<c>& block) const {
        order_.pass();
        if constexpr (c.sm90.wgmma_products) block.scales.multiply(smem_, ring_.stage);
    }

    DG_DEVICE void issue(Block<c>& block, int32_t subtile) const {
        block.stage = ring_.stage;
        if constexpr (c.rows_operand().packed())
            multiply_block<c>(block.partial, block.rows, smem_.cols(ring_.stage), false);
        else
            multiply_block<c>(block.partial, rows(subtile), smem_.cols(ring_.stage), false);
    }

    /// The same, into sums over all blocks.
    DG_DEVICE void multiply_into(Accumulators<c>& total, int32_t subtile) const {
        multiply_block<c>(total, rows(subtile), smem_.cols(ring_.stage), true);
    }
    DG_DEVICE void multiply_into(Accumulators<c>& total, Fragments<c>& fragments, int32_t part) const {
        load_rows(fragments, 0, part);
        multiply_block<c>(total, fragments, smem_.cols(ring_.stage), true);
    }

    /// Of a block's groups of scales one.
    DG_DEVICE void load_group_scales(Block<c>& block, int32_t group) const {
        block.scales.load(smem_, ring_.stage, first_row_, group);
    }
    DG_DEVICE void multiply_group(Block<c>& block, int32_t group) const {
        deep_gemm::multiply_group<c, scale_groups(c)>(block.partial, rows(0), smem_.cols(ring_.stage), group);
    }

    /// The same, into sums of each group of row scales alone.
    template <int32_t kGroups>
    DG_DEVICE void multiply_groups(Accumulators<c> (&partial)[kGroups], Fragments<c>& fragments) const {
        constexpr int32_t kSteps = Fragments<c>::kSteps / kGroups;
        load_rows(fragments, 0);
        pin_groups(partial, fragments);
        ptx::wgmma_fence();
#pragma unroll
        for (int32_t group = 0; group < kGroups; ++group)
            multiply_steps<c, kSteps>(partial[group], fragments, smem_.cols(ring_.stage), group * kSteps);
        ptx::wgmma_commit();
        pin_groups(partial, fragments);
    }
    template <int32_t kGroups>
    static DG_DEVICE void pin_groups(Accumulators<c> (&partial)[kGroups], Fragments<c>& fragments) {
        fragments.pin();
#pragma unroll
        for (int32_t i = 0; i < kGroups * kAccumulators<c>; ++i)
            ptx::pin(partial[i / kAccumulators<c>][i % kAccumulators<c>]);
    }

    /// The scales of a thread's two rows, of the `group`th group of row scales.
    DG_DEVICE void load_row_scales(float (&row)[2], int32_t group) const {
        const uint32_t mine = my_row_scales(group);
        row[0] = ptx::load_shared(mine);
        row[1] = ptx::load_shared(mine + Fragment16x8::kHalfRows * 4);
    }

    /// The same of this stage, whose scales and rows are read and converted while others are multiplied.
    DG_DEVICE void convert(Fragments<c>& fragments, BlockScales<c>& scales) const {
        scales.load(smem_, ring_.stage, first_row_);
        load_rows(fragments, 0);
    }
    DG_DEVICE void issue(Accumulators<c>& partial, Fragments<c>& fragments, int32_t stage) const {
        multiply_block<c>(partial, fragments, smem_.cols(stage), false);
    }
    /// Behind a tile's first issue: warpgroups that issue in turn begin one behind the other, and stay so.
    DG_DEVICE void keep_apart() const {
        if (order_.leads()) ptx::wgmma_wait<0>();
    }
    DG_DEVICE void pass() const { order_.pass(); }

    /// The words of their zero points, of the `group`th group of those.
    DG_DEVICE void load_zeros(uint32_t (&words)[2], int32_t group) const {
        const uint32_t mine = Fragment16x8::thread_word(smem_.zeros(ring_.stage), group * c.tile.rows + first_row_);
        words[0] = static_cast<uint32_t>(ptx::load_shared_int(mine));
        words[1] = static_cast<uint32_t>(ptx::load_shared_int(mine + Fragment16x8::kHalfRows * 4));
    }

    /// This thread's first unit of packed rows, and the columns.
    DG_DEVICE uint32_t packed_units() const { return rows(0) + threadIdx.x % 128 * PackedUnits<c>::kThreadBytes; }
    DG_DEVICE uint32_t cols() const { return smem_.cols(ring_.stage); }

    /// `first` of a tile: warpgroups that issue in turn begin one behind the other, and stay so.
    DG_DEVICE void start(Block<c>& block, bool first) const {
        load_scales(block, 0);
        convert(block, 0);
        order_.wait();
        issue(block, 0);
        if (first && order_.leads()) ptx::wgmma_wait<0>();
        pass(block);
    }

private:
    /// Of a thread's first row, of the `entry`th along K.
    DG_DEVICE uint32_t my_row_scales(int32_t entry) const {
        return Fragment16x8::thread_word(smem_.row_scales(ring_.stage), entry * c.tile.rows + first_row_);
    }

    DG_DEVICE uint32_t rows(int32_t subtile) const {
        return smem_.rows(ring_.stage) + (first_row_ + subtile * subtile_step(c)) * row_bytes(c, c.rows_operand());
    }

    DG_DEVICE void load_rows(Fragments<c>& fragments, int32_t subtile, int32_t part = 0) const {
        fragments.load(rows(subtile), Conversion<c>(smem_, ring_.stage, first_row_ + subtile * subtile_step(c)), part);
    }

    Smem<c> smem_;
    IssueOrder<c> order_;
    ClusterPosition<c> position_;
    Ring<c.stages> ring_;
    int32_t first_row_;
};

/// All but the last kPending blocks are done; this is the oldest: let its stage go and promote it.
template <int32_t kPending, Constant<GemmConfig> c>
DG_DEVICE void finish(const Stages<c>& stages, Block<c>& block, Sums<c>& total) {
    finish_block<kPending>(block.partial);
    block.rows.pin();
    uint32_t read = 0;
    if constexpr (c.rows_operand().packed()) read = block.scales.bits();
    stages.release(block.stage, read);
    block.scales.promote(total, block.partial);
}

}  // namespace deep_gemm
