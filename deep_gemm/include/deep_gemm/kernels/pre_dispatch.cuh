// Tokens into the buffer of a MoE layer in one launch: the first blocks quantise, the others copy choices.
#pragma once

#include <deep_gemm/kernels/quantize_groups.cuh>
#include <deep_gemm/moe/pre_dispatch.cuh>

namespace deep_gemm {

template <Constant<PreDispatchConfig> c>
DG_DEVICE void run_pre_dispatch(const PreDispatchParams& params) {
    const auto block = static_cast<int32_t>(blockIdx.x);
    if (block < params.quantize_blocks) {
        run_quantize_groups<c.quantize>(params.quantize);
        return;
    }
    ptx::wait_for_previous_grid();
    const int32_t all = params.room * params.choices, chosen = params.tokens * params.choices,
                  first = (block - params.quantize_blocks) * kChoicesOfBlock + static_cast<int32_t>(threadIdx.x);
#pragma unroll
    for (int32_t i = first; i < first + kChoicesOfBlock; i += kQuantizeThreads) {
        if (i >= all) return;
        int64_t id = -1;
        float weight = 0.0f;
        if (i < chosen) {
            const int32_t token = i / params.choices, slot = i - token * params.choices;
            const int64_t at = token * params.ids_stride + slot;
            id = c.wide_ids ? static_cast<const int64_t*>(params.ids)[at] : static_cast<const int32_t*>(params.ids)[at];
            weight = __fmul_rn(params.weights[token * params.weights_stride + slot], params.factor);
        }
        params.out_ids[i] = id;
        params.out_weights[i] = weight;
    }
}

}  // namespace deep_gemm
