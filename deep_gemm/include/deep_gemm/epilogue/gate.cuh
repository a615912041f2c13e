// A gate and an up of the product make one element of D, in FP32.
#pragma once

#include <deep_gemm/epilogue/erf.cuh>
#include <deep_gemm/epilogue/step.cuh>

namespace deep_gemm::epilogue {

struct ApplyGate {
    struct Params {
        float limit;  // gates are at most this, ups at most so far from 0; infinite: no limit
        float alpha, up_shift;
    };
    static constexpr bool wanted(const GemmTask& task) { return task.gate.any(); }

#if defined(__CUDACC__)
    /// What the up is multiplied by.
    template <GateKind kKind>
    static DG_DEVICE float activation(float gate, const Params& params) {
        if constexpr (kKind == GateKind::geglu_erf) {
            constexpr float kRootHalf = 0.70710678118654752f;
            return __fmul_rn(__fmul_rn(0.5f, gate), __fadd_rn(1.0f, erf_without_branches(__fmul_rn(gate, kRootHalf))));
        } else {
            float slope = params.alpha;
            if constexpr (kKind == GateKind::geglu_tanh) {
                // 0.5 (1 + tanh(x)) is sigmoid(2 x), with x = sqrt(2 / pi) (gate + 0.044715 gate^3).
                constexpr float kTwice = 1.5957691216057308f, kCubic = 0.044715f;
                slope = __fmul_rn(kTwice, __fmaf_rn(__fmul_rn(kCubic, gate), gate, 1.0f));
            }
            // Not __fdiv_rn, which has branches. (Within 2 ulp; by more than 2^126 it makes 0, as near as matters.)
            return __fdividef(gate, __fadd_rn(1.0f, expf(-__fmul_rn(slope, gate))));
        }
    }

    /// Comparisons, not fminf, which would make a number of NaN. And one at a time: no branches, because rows past the
    /// last one hold anything.
    template <GateKind kKind>
    static DG_DEVICE float of(float gate, float up, const Params& params) {
        gate = gate > params.limit ? params.limit : gate;
        up = up > params.limit ? params.limit : up;
        up = up < -params.limit ? -params.limit : up;
        return __fmul_rn(activation<kKind>(gate, params), __fadd_rn(up, params.up_shift));
    }

    /// `place` is that of the product. Its registers' groups of kGateCols columns are gates and ups in turn.
    template <GemmConfig c, typename Place, typename Values, typename Product>
    static DG_DEVICE void apply(Values& values, const Product& product, const Params& params) {
        Place::for_each_gated([&](int32_t i, int32_t gate, int32_t up) {
            values[i] = of<c.gate.kind>(product[gate], product[up], params);
        });
    }
#endif
};

}  // namespace deep_gemm::epilogue
