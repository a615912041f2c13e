// In turn, with the issue at the end of a round: a stage, and scales where they are few, are waited for in the shadow
// of the wgmma before those that need them, and a stage is let go when the next wgmma are on their way, or before
// (frees_early). Hardly anything is left between promotion and the next issue.
#pragma once

#include <deep_gemm/mma/sm90/stages.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct PromoteAhead {
    static_assert(!overlaps_blocks(c) && k_parts(c) == 1 && !c.rows_operand().packed());

    template <typename Meanwhile>
    static DG_DEVICE void run(Stages<c>& stages, Totals<c>& total, const Tile& tile, int32_t count,
                              const Meanwhile& meanwhile) {
        const Share mine = share(stages, tile);
        Block<c> block;
        stages.wait_full();
        stages.start(block, false);  // even of rows that nobody wants: it costs less than the question
        meanwhile();
        if constexpr (!c.skips_padding) {
            promote_all<Share::all>(stages, block, total, count);
        } else {
            if (mine == Share::all)
                promote_all<Share::all>(stages, block, total, count);
            else if (mine == Share::one)
                promote_all<Share::one>(stages, block, total, count);
            else
                pass_by(stages, block, count);
        }
    }

private:
    using Scales = typename SelectScales<c>::Type;

    /// What a warpgroup works on of a tile with padding.
    enum class Share {
        all,  // its 64 rows, or both times 64
        one,  // its first 64
        none,
    };

    static DG_DEVICE Share share(const Stages<c>& stages, const Tile& tile) {
        if constexpr (!c.skips_padding) return Share::all;
        const int32_t wanted = ptx::uniform(wanted_rows(tile)), first = stages.first_row_in_tile();
        return wanted > first + subtile_step(c) ? Share::all : wanted > first ? Share::one : Share::none;
    }

    /// All K blocks of a tile, of which the first wgmma are under way. The last ones are promoted behind the loop:
    /// asking in each round whether it is the last would keep what the next issue needs from being computed under
    /// wgmma.
    template <Share kShare>
    static DG_DEVICE void promote_all(Stages<c>& stages, Block<c>& block, Totals<c>& total, int32_t count) {
        if constexpr (kSubtiles<c> > 1 && kShare != Share::one) {
            // Rounds begin at a K block's second 64 rows: ptxas then needs fewer instructions for one, and where pairs
            // share the last tiles 9 to 11 % less time (docs/notes/tuning-gains.md).
            promote<kShare, 0>(stages, block, total, true);
#pragma unroll 1
            for (; count > 1; --count) {
                promote<kShare, 1>(stages, block, total, true);
                promote<kShare, 0>(stages, block, total, true);
            }
            promote<kShare, 1>(stages, block, total, false);
        } else {
#pragma unroll 1
            for (; count > 1; --count) promote<kShare, 0>(stages, block, total, true);
            // Or the next place in the ring, with which both rounds begin, is computed before the question which of
            // them follows, and products of scales wait for registers that ptxas moves about (R2UR).
            stages.forget_stage();
            promote<kShare, 0>(stages, block, total, false);
        }
    }

    /// 64 rows of a K block, and the issue of the next wgmma: for the block's other 64 rows, or behind its last ones
    /// for the next block.
    template <Share kShare, int32_t kSubtile>
    static DG_DEVICE void promote(Stages<c>& stages, Block<c>& block, Totals<c>& total, bool more_blocks) {
        constexpr bool kFactors = Scales::kColsUniform, kScalesAhead = kFactors || c.sm90.wgmma_products;
        constexpr int32_t kNext = kShare == Share::one ? 0 : (kSubtile + 1) % kSubtiles<c>;
        static_assert(!frees_early(c) || kFactors, "scales that are read while promoting are in the stage");
        const int32_t stage = stages.current();
        const bool more = kNext > 0 || more_blocks;
        RunFactors<c, Scales::kRuns> factors;  // their scales are about to be replaced
        if constexpr (kFactors) factors = block.scales.factors();
        if (kNext == 0) {
            stages.advance();
            if (more) stages.wait_full();
        }
        if (kScalesAhead && more) stages.load_scales(block, kNext);
        if (more) stages.wait_for_order();
        finish_block<0>(block.partial);
        if (frees_early(c) && kNext == 0) stages.release(stage);
        if constexpr (kFactors)
            factors.promote(total[kSubtile], block.partial);
        else
            block.scales.promote(total[kSubtile], block.partial);
        if (!kScalesAhead && more) stages.load_scales(block, kNext);
        if (more) stages.multiply(block, kNext);
        if constexpr (!frees_early(c) && kNext == 0) {
            // Behind the last block no wgmma waits for scales that were read while promoting: the last ones are in
            // this sum.
            const float last = scales_stay_in_smem(c) ? total[kSubtile][kAccumulators<c> - 1] : 0.0f;
            stages.release(stage, __float_as_uint(last));
        }
    }

    /// Each stage is let go when it has come. The first one's wgmma are under way, and its scales, which nobody wants,
    /// may be.
    static DG_DEVICE void pass_by(Stages<c>& stages, Block<c>& block, int32_t count) {
        finish_block<0>(block.partial);
        const uint32_t read = block.scales.bits();
        for (;;) {
            stages.release(stages.current(), read);
            stages.advance();
            if (--count == 0) return;
            stages.wait_full();
        }
    }
};

}  // namespace deep_gemm
