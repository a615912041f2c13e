// What is quantised, as DeepGEMM's FP8CastWithClamp has it: rounded to BF16, then bounded. How many values were beyond
// the bound is added to a counter.
#pragma once

#include <deep_gemm/epilogue/step.cuh>
#if defined(__CUDACC__)
#include <deep_gemm/element.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/maximum.cuh>
#include <deep_gemm/ptx/memory.cuh>
#endif

namespace deep_gemm::epilogue {

struct Clamp {
    struct Params {
        float bound;      // infinite: none
        uint32_t* count;  // or null
    };
    static constexpr bool wanted(const GemmConfig& c) { return c.rounding == Rounding::clamped; }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end,
                                const Params& params) {
        using Stored = Pack<Element::bf16>;
        const Place& at = end.at;
#pragma unroll
        for (auto& value : values) value = Stored::unpack(Stored::pack(value, 0.0f)).x;
        // Where a tile is finished twice, once.
        bool counts = params.count != nullptr;
        if constexpr (Place::kExchanges) counts = counts && at.finds;
        if (counts) count_beyond<c>(values, at, params);
#pragma unroll
        for (auto& value : values) value = ptx::max_or_nan(ptx::min_or_nan(value, params.bound), -params.bound);
    }

private:
    /// NaN is.
    template <Constant<GemmConfig> c, typename Values, typename Place>
    static DG_DEVICE void count_beyond(const Values& values, const Place& at, const Params& params) {
        int32_t cols[Place::kValues], found = 0;
        at.for_each_col([&](int32_t i, int32_t col) { cols[i] = col; });
        at.for_each_row([&](int32_t i, int32_t row) {
            // Beyond D nothing was computed: no branch is to depend on it.
            const float inside = row < at.m_end && cols[i] < at.n_end ? values[i] : 0.0f;
            found += !(fabsf(inside) <= params.bound) ? 1 : 0;
        });
#pragma unroll
        for (int32_t distance = 1; distance < 32; distance *= 2) found += __shfl_xor_sync(0xffffffff, found, distance);
        if (found > 0 && ptx::lane() == 0) ptx::add_global(params.count, static_cast<uint32_t>(found));
    }
#endif
};

}  // namespace deep_gemm::epilogue
