// Plus C.
#pragma once

#include <deep_gemm/epilogue/step.cuh>
#if defined(__CUDACC__)
#include <deep_gemm/element.cuh>
#endif

namespace deep_gemm::epilogue {

struct AddC {
    using Params = NoParams;  // where C lies others know too: they ask the L2 for it
    static constexpr bool wanted(const GemmConfig& c) { return c.add_c; }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end, NoParams) {
        const auto& params = end.params;
        end.at.template for_each_stored<c.output>(static_cast<const StorageOf<c.output>*>(params.c_data),
                                                  params.c_stride, params.c_group_stride,
                                                  [&](int32_t i, auto value) { values[i] += value; });
    }
#endif
};

}  // namespace deep_gemm::epilogue
