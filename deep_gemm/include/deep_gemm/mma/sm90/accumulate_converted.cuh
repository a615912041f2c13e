// Where K blocks are not promoted and rows are converted on the way: two K blocks' fragments by name, so that one is
// converted while the tensor cores read the other.
#pragma once

#include <deep_gemm/mma/sm90/stages.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct AccumulateConverted {
    static_assert(kSubtiles<c> == 1);

    template <typename Meanwhile>
    static DG_DEVICE void run(Stages<c>& stages, Totals<c>& total, const Tile&, int32_t count, const Meanwhile&) {
        Fragments<c> even, odd;
        constexpr int32_t kOdd = c.stages_of_block() - 1;  // 1: the second half of a block
        int32_t previous = start_first(stages, total[0], even);
        for (;; count -= 2) {
            if (count == 1) return end(stages, total[0], even, previous);
            previous = start_next<kOdd>(stages, total[0], even, odd, previous);
            if (count == 2) return end(stages, total[0], odd, previous);
            previous = start_next<0>(stages, total[0], odd, even, previous);
        }
    }

private:
    static DG_DEVICE int32_t start_first(Stages<c>& stages, Accumulators<c>& total, Fragments<c>& mine) {
        stages.wait_full();
        stages.multiply_into(total, mine, 0);
        return advance(stages);
    }

    /// The block before is over when this one is under way.
    template <int32_t kPart>
    static DG_DEVICE int32_t start_next(Stages<c>& stages, Accumulators<c>& total, Fragments<c>& before,
                                        Fragments<c>& mine, int32_t previous) {
        stages.wait_full();
        stages.multiply_into(total, mine, kPart);
        ptx::wgmma_wait<1>();
        before.pin();
        stages.release(previous);
        return advance(stages);
    }

    static DG_DEVICE void end(Stages<c>& stages, Accumulators<c>& total, Fragments<c>& last, int32_t previous) {
        finish_block<0>(total);
        last.pin();
        if constexpr (c.scaled()) {
            BlockScales<c> scales;
            stages.load_scales(scales, previous);
            scales.multiply(total);
            stages.release(previous, scales.bits());
        } else {
            stages.release(previous);
        }
    }

    static DG_DEVICE int32_t advance(Stages<c>& stages) {
        const int32_t stage = stages.current();
        stages.advance();
        return stage;
    }
};

}  // namespace deep_gemm
