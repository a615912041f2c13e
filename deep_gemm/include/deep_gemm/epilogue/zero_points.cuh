// Less what zero points of A add: sum of (a - zero) b = sum of a b - zero * sum of b, exact where sums are.
#pragma once

#include <deep_gemm/epilogue/step.cuh>
#if defined(__CUDACC__)
#include <deep_gemm/element.cuh>
#endif

namespace deep_gemm::epilogue {

struct ZeroPoints {
    struct Params {
        PerChannel<int32_t> zeros;
        const void* sums_b;  // of B's rows: s32, or FP32 where K blocks are scaled
        int64_t sums_group_stride;
    };
    static constexpr bool wanted(const GemmConfig& c) { return c.asymmetric_a; }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const SumsAt<c, Place>& sums,
                                const TileEnd<c, Place, Padding>& end, const Params& params) {
        constexpr Element kSum = c.sum();  // FP32 where groups of K have scales: sums of B's rows have them too
        using Sum = RegisterOf<kSum>;
        const Place& at = end.at;
        const auto* of_rows = static_cast<const StorageOf<kSum>*>(params.sums_b) + at.expert * params.sums_group_stride;
        const auto subtract = [&](int32_t i, int32_t zero, Sum of_row) {
            if constexpr (kSum == Element::s32)
                values[i] = static_cast<float>(sums[i] - zero * of_row);
            else
                values[i] = __fmaf_rn(-static_cast<float>(zero), of_row, sums[i]);
        };
        // First those along the instruction's rows, of which a thread has few: they stay in registers.
        if constexpr (c.swap_ab) {
            SumsAt<c, Place> of_row;
            at.template for_each_along<false, kSum>(of_rows, 1, [&](int32_t i, Sum sum) { of_row[i] = sum; });
            for_each_channel<true, Element::s32>(params.zeros, at,
                                                 [&](int32_t i, int32_t zero) { subtract(i, zero, of_row[i]); });
        } else {
            int32_t zeros[Place::kValues];
            for_each_channel<true, Element::s32>(params.zeros, at, [&](int32_t i, int32_t zero) { zeros[i] = zero; });
            at.template for_each_along<false, kSum>(of_rows, 1,
                                                    [&](int32_t i, Sum sum) { subtract(i, zeros[i], sum); });
        }
    }
#endif
};

}  // namespace deep_gemm::epilogue
