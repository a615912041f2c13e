// Where nothing is promoted: the tensor cores accumulate themselves, BF16 in FP32, integers exactly.
#pragma once

#include <deep_gemm/mma/sm90/stages.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct Accumulate {
    /// A stage is let go one block late, so that the tensor cores never run dry.
    template <typename Meanwhile>
    static DG_DEVICE void run(Stages<c>& stages, Totals<c>& total, const Tile&, int32_t count, const Meanwhile&) {
        int32_t previous = 0;
#pragma unroll 1
        for (int32_t i = 0; i < count; ++i, stages.advance()) {
            stages.wait_full();
#pragma unroll
            for (int32_t subtile = 0; subtile < kSubtiles<c>; ++subtile) stages.multiply_into(total[subtile], subtile);
            ptx::wgmma_wait<kSubtiles<c>>();
            if (i > 0) stages.release(previous);
            previous = stages.current();
        }
#pragma unroll
        for (int32_t subtile = 0; subtile < kSubtiles<c>; ++subtile) finish_block<0>(total[subtile]);
        stages.release(previous);
    }
};

}  // namespace deep_gemm
