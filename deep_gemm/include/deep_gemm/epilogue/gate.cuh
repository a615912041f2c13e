// A gate and an up of the product make one element of D, in FP32.
#pragma once

#include <deep_gemm/epilogue/step.cuh>
#if defined(__CUDACC__)
#include <deep_gemm/activation.cuh>
#endif

namespace deep_gemm::epilogue {

struct ApplyGate {
    using Params = GateNumbers;
    static constexpr bool wanted(const GemmTask& task) { return task.gate.any(); }

#if defined(__CUDACC__)
    /// `place` is that of the product. Its registers' groups of kGateCols columns are gates and ups in turn.
    template <GemmConfig c, typename Place, typename Values, typename Product>
    static DG_DEVICE void apply(Values& values, const Product& product, const Params& params) {
        Place::for_each_gated([&](int32_t i, int32_t gate, int32_t up) {
            values[i] = gated<c.gate.kind>(product[gate], product[up], params);
        });
    }
#endif
};

}  // namespace deep_gemm::epilogue
