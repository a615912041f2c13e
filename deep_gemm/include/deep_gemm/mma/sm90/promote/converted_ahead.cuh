// In turn, where rows are converted on the way: the next K block's while the tensor cores multiply this one's, so that
// nothing but promotion stands between a block's products and the next ones.
#pragma once

#include <deep_gemm/mma/sm90/stages.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct PromoteConvertedAhead {
    static_assert(kSubtiles<c> == 1 && c.rows_operand().packed());

    /// Two blocks by name, as registers cannot be indexed; and one set of sums.
    template <typename Meanwhile>
    static DG_DEVICE void run(Stages<c>& stages, Totals<c>& total, const Tile&, int32_t count,
                              const Meanwhile& meanwhile) {
        Accumulators<c> partial;
        Converted even, odd;
        convert_next(stages, even);
        issue(stages, partial, even, true);
        meanwhile();
        for (;; count -= 2) {
            if (count == 1) return promote(stages, total[0], partial, even);
            turn(stages, total[0], partial, even, odd);
            if (count == 2) return promote(stages, total[0], partial, odd);
            turn(stages, total[0], partial, odd, even);
        }
    }

private:
    struct Converted {
        Fragments<c> rows;
        BlockScales<c> scales;
        int32_t stage;
    };

    static DG_DEVICE void convert_next(Stages<c>& stages, Converted& block) {
        stages.wait_full();
        stages.convert(block.rows, block.scales);
        block.stage = stages.current();
        stages.advance();
    }

    static DG_DEVICE void issue(const Stages<c>& stages, Accumulators<c>& partial, Converted& block, bool first) {
        stages.wait_for_order();
        stages.issue(partial, block.rows, block.stage);
        if (first) stages.keep_apart();
        stages.pass();
    }

    static DG_DEVICE void promote(const Stages<c>& stages, Sums<c>& total, Accumulators<c>& partial, Converted& block) {
        finish_block<0>(partial);
        block.rows.pin();
        stages.release(block.stage, block.scales.bits());
        block.scales.promote(total, partial);
    }

    static DG_DEVICE void turn(Stages<c>& stages, Sums<c>& total, Accumulators<c>& partial, Converted& now,
                               Converted& next) {
        convert_next(stages, next);
        promote(stages, total, partial, now);
        issue(stages, partial, next, false);
    }
};

}  // namespace deep_gemm
