// Where a stage holds several groups of scales and rows are multiplied as they lie: one group after the other, each
// summed and promoted by itself. While a warpgroup promotes, another one multiplies.
#pragma once

#include <deep_gemm/mma/sm90/stages.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct PromoteGroupByGroup {
    static_assert(kSubtiles<c> == 1 && !c.rows_operand().packed());

    template <typename Meanwhile>
    static DG_DEVICE void run(Stages<c>& stages, Totals<c>& total, const Tile&, int32_t count,
                              const Meanwhile& meanwhile) {
        for (int32_t i = 0; i < count; ++i, stages.advance()) {
            stages.wait_full();
            Block<c> block;
            uint32_t read = 0;
            // Unrolled, scales of the next group are loaded ahead, into registers that wide tiles do not have.
#pragma unroll 1
            for (int32_t group = 0; group < scale_groups(c); ++group) {
                stages.load_group_scales(block, group);
                stages.multiply_group(block, group);
                if (i == 0 && group == 0) meanwhile();
                finish_block<0>(block.partial);
                read |= block.scales.promote(total[0], block.partial) | block.scales.bits();
            }
            stages.release(stages.current(), read);
        }
    }
};

}  // namespace deep_gemm
