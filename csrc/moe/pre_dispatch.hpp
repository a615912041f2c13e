// Tokens into the buffer of a MoE layer (kernels/pre_dispatch.cuh).
#pragma once

#include "../quantize/call.hpp"

namespace deep_gemm {

struct PreDispatchTensors {
    const TensorView &x, &ids, &weights;      // of the tokens that count
    const TensorView &q, &s;                  // written, of so many
    const TensorView &out_ids, &out_weights;  // written, all rows of the buffer
};

void pre_dispatch(const PreDispatchTensors& tensors, float factor);

}  // namespace deep_gemm
