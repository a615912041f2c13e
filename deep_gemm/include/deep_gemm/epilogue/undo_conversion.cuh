// Sums of codes that no scale multiplies. Conversion makes 16 times its value of a signed code, which stored scales
// make up for where there are some; each sum is a multiple of 16 then.
#pragma once

#include <deep_gemm/epilogue/step.cuh>

namespace deep_gemm::epilogue {

struct UndoConversion {
    using Params = NoParams;
    static constexpr bool wanted(const GemmConfig& c) {
        return c.output == Element::s32 && multiplies(c, Element::s8, Element::s4);
    }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>&, NoParams) {
#pragma unroll
        for (auto& value : values) value >>= 4;
    }
#endif
};

}  // namespace deep_gemm::epilogue
