// In turn, where scales are read while promoting.
#pragma once

#include <deep_gemm/mma/sm90/stages.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct PromoteFromSmem {
    static_assert(kSubtiles<c> == 1);

    /// A stage is let go when the next block's wgmma have been issued. They replace what has been promoted, so all
    /// scales must have come by then; not so of integers, which were converted before scales came.
    template <typename Meanwhile>
    static DG_DEVICE void run(Stages<c>& stages, Totals<c>& total, const Tile&, int32_t count,
                              const Meanwhile& meanwhile) {
        uint32_t read = 0;
        int32_t before = 0;
#pragma unroll 1
        for (int32_t i = 0; i < count; ++i, stages.advance()) {
            stages.wait_full();
            Block<c> block;
            stages.start(block, i == 0);
            if (i == 0)
                meanwhile();
            else
                stages.release(before, c.block_sum() == Element::s32 ? read : 0);
            finish_block<0>(block.partial);
            read = block.scales.promote(total[0], block.partial);
            before = block.stage;
        }
        stages.release(before, read);
    }
};

}  // namespace deep_gemm
