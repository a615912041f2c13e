// All K blocks of a tile, for one math warpgroup: wait for a stage, multiply, promote, let the stage go.
#pragma once

#include <deep_gemm/mma/sm90/issue_order.cuh>
#include <deep_gemm/mma/sm90/multiply.cuh>
#include <deep_gemm/mma/sm90/scales.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm {

template <GemmConfig c>
class MainLoop {
public:
    static constexpr int32_t kSubtiles = warpgroup_rows(c) / kWgmmaRows;
    using Totals = Accumulators<c>[kSubtiles];

    DG_DEVICE MainLoop(const Smem<c>& smem, int32_t warpgroup)
        : smem_(smem), order_(warpgroup), first_row_(first_row(c, warpgroup)) {
        // A stage belongs to one turn: who waits for its next phase has seen the one before. (Otherwise a barrier whose
        // earlier phase is still open, copies being late, looks as if the awaited one were over.)
        static_assert(c.stages % c.sm90.k_warpgroups == 0);
        if constexpr (c.sm90.k_warpgroups > 1) {
            turn_ = warpgroup / row_warpgroups(c);
            ring_.advance(turn_);
        }
    }

    /// `total` = the sum of the tile's K blocks, or of this warpgroup's share of them. `meanwhile()` is called once,
    /// and clears the sums; where it has more to do, when the first rows are under way: the tensor cores wait for
    /// nothing that can be done then. (A branch that did no more than clear the sums would become a select of each sum
    /// in each round.)
    template <typename Meanwhile>
    DG_DEVICE void run(Totals& total, const Tile& tile, const Meanwhile& meanwhile) {
        // The place in the ring, and the descriptors made of it, belong in uniform registers. Where ptxas is not sure
        // that all lanes count alike, as behind a scheduler that loads, it moves each of them there (R2UR) while wgmma
        // waits for it. tests/kernels/test_every_kernel.py looks for such moves.
        int32_t k_blocks = tile.k_blocks;
        // The ring's position serves one tile only: where warpgroups take turns, a CTA has no other.
        if constexpr (c.sm90.k_warpgroups > 1)
            k_blocks = (k_blocks - turn_ + c.sm90.k_warpgroups - 1) / c.sm90.k_warpgroups;
        constexpr bool kSameForAll = has_fixed_extents(c.grouping) && !c.shares_last;  // a count of the argument's
        constexpr bool kUniform = kSameForAll && (c.scaled() || c.cluster.k == 1);
        if constexpr (!kUniform) k_blocks = ptx::uniform(k_blocks);
        constexpr bool kEarly = c.scaled() && (stores_late(c) || !TileScheduler<c>::kPlaced);
        const auto begin = [&] {
            if constexpr (kEarly) meanwhile();
        };
        // Without the question about 0, ptxas does not see that all lanes of a masked kernel count alike; with it, a
        // tile stored late has its code twice, and 256x128 spills. So late tiles ask only where there may be empty
        // ones.
        constexpr bool kNeverEmpty = stores_late(c) && c.grouping != Grouping::m_psum &&
                                     (c.grouping != Grouping::k_contiguous || adds_to_memory(c.store));
        const bool empty = !kNeverEmpty && k_blocks == 0;
        if (!kEarly || empty) meanwhile();
        if (empty) return;
        if constexpr (!c.scaled())
            accumulate(total, k_blocks);
        else if constexpr (overlaps_blocks(c))
            promote_overlapped(total[0], k_blocks, begin);
        else if constexpr (c.sm90.look_ahead)
            promote_ahead(total, tile, k_blocks, begin);
        else if constexpr (scales_stay_in_smem(c))
            promote_from_smem(total[0], k_blocks, begin);
        else
            promote_in_turn(total[0], k_blocks, begin);
    }

    /// After the last tile.
    DG_DEVICE void end() const { order_.end(); }

    static DG_DEVICE void clear(Totals& total) {
#pragma unroll
        for (int32_t i = 0; i < kSubtiles * kAccumulators<c>; ++i)
            total[i / kAccumulators<c>][i % kAccumulators<c>] = 0;
    }

private:
    static_assert(!c.scaled() || (c.tile.k == c.a.scaling.k && c.tile.k == c.b.scaling.k),
                  "a stage holds one group of scales, which one promotion applies");
    static_assert(!overlaps_blocks(c) || !scales_stay_in_smem(c), "the next block may replace them");
    static_assert(!c.sm90.wgmma_products || (c.sm90.look_ahead && kSubtiles == 1));
    static_assert(!c.sm90.look_ahead || (!overlaps_blocks(c) && k_parts(c) == 1));

    using Scales = typename SelectScales<c>::Type;

    /// 64 rows of a K block between the issue of their wgmma and the end of their promotion.
    struct Block {
        Accumulators<c> partial;
        Scales scales;
        int32_t stage;
    };

    DG_DEVICE uint32_t rows(int32_t subtile) const {
        return smem_.rows(ring_.stage) + (first_row_ + subtile * subtile_step(c)) * row_bytes(c, c.rows_operand());
    }

    /// To this warpgroup's next K block.
    DG_DEVICE void advance() {
        if constexpr (c.sm90.k_warpgroups == 1)
            ring_.advance();
        else
            ring_.advance(c.sm90.k_warpgroups);
    }

    DG_DEVICE void wait_full() const { ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase); }

    /// This warp's turn with a stage is over: tell every CTA that may copy into it.
    ///
    /// All that the warp has loaded from the stage must have come. The hardware does not order loads and the arrival:
    /// behind loads of other warps (of C, say) one may take so long that the copy engine replaces what it is to read
    /// (docs/kernels.md). `read` is of loads that may still be under way; those from before wgmma that
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

    DG_DEVICE void load_scales(Block& block, int32_t subtile) const {
        block.scales.load(smem_, ring_.stage, first_row_ + subtile * subtile_step(c));
    }

    DG_DEVICE void multiply(Block& block, int32_t subtile) const {
        block.stage = ring_.stage;
        multiply_block<c>(block.partial, rows(subtile), smem_.cols(ring_.stage), false);
        order_.pass();
        if constexpr (c.sm90.wgmma_products) block.scales.multiply(smem_, ring_.stage);
    }

    DG_DEVICE void start(Block& block) const {
        load_scales(block, 0);
        order_.wait();
        multiply(block, 0);
    }

    /// All but the last kPending blocks are done; this is the oldest.
    template <int32_t kPending>
    DG_DEVICE void finish(Block& block, Accumulators<c>& total) const {
        finish_block<kPending>(block.partial);
        release(block.stage);
        block.scales.promote(total, block.partial);
    }

    /// At least one block; `meanwhile` once the first is under way. (A branch in each round: a first round of its own
    /// takes registers that three warpgroups do not have.)
    template <typename Meanwhile>
    DG_DEVICE void promote_in_turn(Accumulators<c>& total, int32_t k_blocks, const Meanwhile& meanwhile) {
        static_assert(kSubtiles == 1);
#pragma unroll 1
        for (int32_t i = 0; i < k_blocks; ++i, advance()) {
            wait_full();
            Block block;
            start(block);
            if (i == 0) meanwhile();
            finish<0>(block, total);
        }
    }

    /// The same where scales are read while promoting: a stage is let go when the next block's wgmma have been issued.
    /// They replace what has been promoted, so all scales must have come by then.
    template <typename Meanwhile>
    DG_DEVICE void promote_from_smem(Accumulators<c>& total, int32_t k_blocks, const Meanwhile& meanwhile) {
        static_assert(kSubtiles == 1);
        uint32_t read = 0;
        int32_t before = 0;
#pragma unroll 1
        for (int32_t i = 0; i < k_blocks; ++i, advance()) {
            wait_full();
            Block block;
            start(block);
            if (i == 0)
                meanwhile();
            else
                release(before);
            finish_block<0>(block.partial);
            read = block.scales.promote(total, block.partial);
            before = block.stage;
        }
        release(before, read);
    }

    /// What a warpgroup works on of a tile with padding.
    enum class Share {
        all,  // its 64 rows, or both times 64
        one,  // its first 64
        none,
    };

    DG_DEVICE Share share(const Tile& tile) const {
        if constexpr (!c.skips_padding) return Share::all;
        const int32_t wanted = ptx::uniform(wanted_rows(tile));
        return wanted > first_row_ + subtile_step(c) ? Share::all : wanted > first_row_ ? Share::one : Share::none;
    }

    /// The same with the issue at the end: a stage, and scales where they are few, are waited for in the shadow of the
    /// wgmma before those that need them, and a stage is let go when the next wgmma are on their way, or before
    /// (frees_early). Hardly anything is left between promotion and the next issue.
    template <typename Meanwhile>
    DG_DEVICE void promote_ahead(Totals& total, const Tile& tile, int32_t k_blocks, const Meanwhile& meanwhile) {
        const Share mine = share(tile);
        Block block;
        wait_full();
        start(block);  // even of rows that nobody wants: it costs less than the question
        meanwhile();
        if constexpr (!c.skips_padding) {
            promote_rest<Share::all>(block, total, k_blocks);
        } else {
            if (mine == Share::all)
                promote_rest<Share::all>(block, total, k_blocks);
            else if (mine == Share::one)
                promote_rest<Share::one>(block, total, k_blocks);
            else
                pass_by(block, k_blocks);
        }
    }

    /// All K blocks of a tile, of which the first wgmma are under way. The last ones are promoted behind the loop:
    /// asking in each round whether it is the last would keep what the next issue needs from being computed under
    /// wgmma.
    template <Share kShare>
    DG_DEVICE void promote_rest(Block& block, Totals& total, int32_t k_blocks) {
        if constexpr (kSubtiles > 1 && kShare != Share::one) {
#pragma unroll 1
            for (; k_blocks > 1; --k_blocks) {
                promote_rows<kShare, 0>(block, total, true);
                promote_rows<kShare, 1>(block, total, true);
            }
            promote_rows<kShare, 0>(block, total, true);
            promote_rows<kShare, 1>(block, total, false);
        } else {
#pragma unroll 1
            for (; k_blocks > 1; --k_blocks) promote_rows<kShare, 0>(block, total, true);
            // Or the next place in the ring, with which both rounds begin, is computed before the question which of
            // them follows, and products of scales wait for registers that ptxas moves about (R2UR).
            ptx::forget(ring_.stage);
            promote_rows<kShare, 0>(block, total, false);
        }
    }

    /// 64 rows of a K block, and the issue of the next wgmma: for the block's other 64 rows, or behind its last ones
    /// for the next block.
    template <Share kShare, int32_t kSubtile>
    DG_DEVICE void promote_rows(Block& block, Totals& total, bool more_blocks) {
        constexpr bool kFactors = Scales::kColsUniform, kScalesAhead = kFactors || c.sm90.wgmma_products;
        constexpr int32_t kNext = kShare == Share::one ? 0 : (kSubtile + 1) % kSubtiles;
        static_assert(!frees_early(c) || kFactors, "scales that are read while promoting are in the stage");
        const int32_t stage = ring_.stage;
        const bool more = kNext > 0 || more_blocks;
        RunFactors<c, Scales::kRuns> factors;  // their scales are about to be replaced
        if constexpr (kFactors) factors = block.scales.factors();
        if (kNext == 0) {
            advance();
            if (more) wait_full();
        }
        if (kScalesAhead && more) load_scales(block, kNext);
        if (more) order_.wait();
        finish_block<0>(block.partial);
        if (frees_early(c) && kNext == 0) release(stage);
        if constexpr (kFactors)
            factors.promote(total[kSubtile], block.partial);
        else
            block.scales.promote(total[kSubtile], block.partial);
        if (!kScalesAhead && more) load_scales(block, kNext);
        if (more) multiply(block, kNext);
        if constexpr (!frees_early(c) && kNext == 0) {
            // Behind the last block no wgmma waits for scales that were read while promoting: the last ones are in
            // this sum.
            const float last = scales_stay_in_smem(c) ? total[kSubtile][kAccumulators<c> - 1] : 0.0f;
            release(stage, __float_as_uint(last));
        }
    }

    /// Each stage is let go when it has come. The first one's wgmma are under way, and its scales, which nobody wants,
    /// may be.
    DG_DEVICE void pass_by(Block& block, int32_t k_blocks) {
        finish_block<0>(block.partial);
        const uint32_t read = block.scales.bits();
        for (;;) {
            release(ring_.stage, read);
            advance();
            if (--k_blocks == 0) return;
            wait_full();
        }
    }

    /// Two blocks by name, not by index: registers cannot be indexed.
    template <typename Meanwhile>
    DG_DEVICE void promote_overlapped(Accumulators<c>& total, int32_t k_blocks, const Meanwhile& meanwhile) {
        Block even, odd;
        start_next(even);
        meanwhile();
        for (;; k_blocks -= 2) {
            if (k_blocks == 1) return finish<0>(even, total);
            start_next(odd);
            finish<1>(even, total);
            if (k_blocks == 2) return finish<0>(odd, total);
            start_next(even);
            finish<1>(odd, total);
        }
    }

    DG_DEVICE void start_next(Block& block) {
        wait_full();
        start(block);
        advance();
    }

    /// Where nothing is promoted: the tensor cores accumulate themselves, BF16 in FP32, integers exactly. A stage is
    /// let go one block late, so that they never run dry.
    DG_DEVICE void accumulate(Totals& total, int32_t k_blocks) {
        int32_t previous = 0;
#pragma unroll 1
        for (int32_t i = 0; i < k_blocks; ++i, advance()) {
            wait_full();
#pragma unroll
            for (int32_t subtile = 0; subtile < kSubtiles; ++subtile)
                multiply_block<c>(total[subtile], rows(subtile), smem_.cols(ring_.stage), true);
            ptx::wgmma_wait<kSubtiles>();
            if (i > 0) release(previous);
            previous = ring_.stage;
        }
#pragma unroll
        for (int32_t subtile = 0; subtile < kSubtiles; ++subtile) finish_block<0>(total[subtile]);
        release(previous);
    }

    Smem<c> smem_;
    IssueOrder<c> order_;
    ClusterPosition<c> position_;
    Ring<c.stages> ring_;
    int32_t first_row_;
    int32_t turn_ = 0;  // among the warpgroups that share its rows
};

}  // namespace deep_gemm
