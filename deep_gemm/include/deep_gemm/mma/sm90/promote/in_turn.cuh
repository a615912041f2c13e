// One K block after the other: multiply, promote. While a warpgroup promotes, another one multiplies.
#pragma once

#include <deep_gemm/mma/sm90/stages.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct PromoteInTurn {
    static_assert(kSubtiles<c> == 1);

    /// At least one block; `meanwhile` once the first is under way. (A branch in each round: a first round of its own
    /// takes registers that three warpgroups do not have.)
    template <typename Meanwhile>
    static DG_DEVICE void run(Stages<c>& stages, Totals<c>& total, const Tile&, int32_t count,
                              const Meanwhile& meanwhile) {
#pragma unroll 1
        for (int32_t i = 0; i < count; ++i, stages.advance()) {
            stages.wait_full();
            Block<c> block;
            stages.start(block, i == 0);
            if (i == 0) meanwhile();
            finish<0>(stages, block, total[0]);
        }
    }
};

}  // namespace deep_gemm
