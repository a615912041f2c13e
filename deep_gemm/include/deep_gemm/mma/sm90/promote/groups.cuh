// Where a stage holds several groups of row scales: sums of each group by themselves, all of a stage under way at once.
#pragma once

#include <deep_gemm/mma/sm90/stages.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct PromoteGroups {
    static_assert(kSubtiles<c> == 1 && c.rows_operand().packed());

    template <typename Meanwhile>
    static DG_DEVICE void run(Stages<c>& stages, Totals<c>& total, const Tile&, int32_t count,
                              const Meanwhile& meanwhile) {
        constexpr int32_t kGroups = scale_groups(c);
        Accumulators<c> partial[kGroups];
        Fragments<c> rows;
        Block<c> block;  // of which the scales are used
#pragma unroll 1
        for (int32_t i = 0; i < count; ++i, stages.advance()) {
            stages.wait_full();
            float row[kGroups][2];
#pragma unroll
            for (int32_t group = 0; group < kGroups; ++group) stages.load_row_scales(row[group], group);
            stages.load_scales(block, 0);
            stages.multiply_groups(partial, rows);
            if (i == 0) meanwhile();
            ptx::wgmma_wait<0>();
            Stages<c>::pin_groups(partial, rows);
            uint32_t read = 0;
#pragma unroll
            for (int32_t group = 0; group < kGroups; ++group) {
                block.scales.row[0] = row[group][0], block.scales.row[1] = row[group][1];
                read |= block.scales.promote(total[0], partial[group]) | block.scales.bits();
            }
            stages.release(stages.current(), read);
        }
    }
};

}  // namespace deep_gemm
