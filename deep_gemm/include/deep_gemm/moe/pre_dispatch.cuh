// Tokens into the buffer of a MoE layer: config and arguments.
#pragma once

#include <deep_gemm/quantize/config.cuh>

namespace deep_gemm {

inline constexpr int32_t kChoicesOfBlock = 4 * kQuantizeThreads;

struct PreDispatchConfig {
    QuantizeConfig quantize;
    bool wide_ids = false;  // int64

    constexpr bool operator==(const PreDispatchConfig&) const = default;
};

/// Slots of tokens behind the last one become none. Strides are of elements.
struct PreDispatchParams {
    QuantizeParams quantize;
    const void* ids;
    const float* weights;
    int64_t ids_stride, weights_stride;
    int64_t* out_ids;  // [room][choices]
    float* out_weights;
    float factor;  // of weights
    int32_t quantize_blocks, tokens, room, choices;
};

}  // namespace deep_gemm
