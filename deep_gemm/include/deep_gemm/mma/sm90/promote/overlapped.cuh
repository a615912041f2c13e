// The next K block is multiplied while this one is promoted.
#pragma once

#include <deep_gemm/mma/sm90/stages.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct PromoteOverlapped {
    static_assert(kSubtiles<c> == 1);
    static_assert(!scales_stay_in_smem(c), "the next block may replace them");

    /// Two blocks by name, not by index: registers cannot be indexed.
    template <typename Meanwhile>
    static DG_DEVICE void run(Stages<c>& stages, Totals<c>& total, const Tile&, int32_t count,
                              const Meanwhile& meanwhile) {
        Block<c> even, odd;
        start_next(stages, even);
        meanwhile();
        for (;; count -= 2) {
            if (count == 1) return finish<0>(stages, even, total[0]);
            start_next(stages, odd);
            finish<1>(stages, even, total[0]);
            if (count == 2) return finish<0>(stages, odd, total[0]);
            start_next(stages, even);
            finish<1>(stages, odd, total[0]);
        }
    }

private:
    static DG_DEVICE void start_next(Stages<c>& stages, Block<c>& block) {
        stages.wait_full();
        stages.start(block, false);
        stages.advance();
    }
};

}  // namespace deep_gemm
