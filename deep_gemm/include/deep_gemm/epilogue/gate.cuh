// A gate and an up of the product make one element of D, in FP32.
#pragma once

#include <deep_gemm/epilogue/step.cuh>
#if defined(__CUDACC__)
#include <deep_gemm/activation.cuh>
#endif

namespace deep_gemm::epilogue {

struct ApplyGate {
    using Params = GateNumbers;
    static constexpr bool wanted(const GemmConfig& c) { return c.gate.any(); }

#if defined(__CUDACC__)
    /// `place` is that of the product, and has of both whatever makes one of its elements of D.
    template <Constant<GemmConfig> c, typename Place, typename Values, typename Product>
    static DG_DEVICE void apply(Values& values, const Product& product, const Params& params) {
        Place::for_each_gated(product, [&](int32_t i, float gate, float up) {
            values[i] = gated<c.gate.kind>(gate, up, params);
        });
    }
#endif
};

}  // namespace deep_gemm::epilogue
