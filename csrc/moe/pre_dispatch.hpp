// Tokens into the buffer of a MoE layer (kernels/pre_dispatch.cuh).
#pragma once

#include "../quantize/call.hpp"

namespace deep_gemm {

struct PreDispatchRecord {
    TensorView x, ids, weights;  // of the tokens that count
    int64_t factor_bits = 0;     // of weights, FP32
    // Written.
    TensorView q, s;                  // of so many
    TensorView out_ids, out_weights;  // all rows of the buffer
};

template <>
inline constexpr auto kFieldsOf<PreDispatchRecord> = std::tuple{
    Field{"x", &PreDispatchRecord::x},
    Field{"ids", &PreDispatchRecord::ids},
    Field{"weights", &PreDispatchRecord::weights},
    Field{"factor_bits", &PreDispatchRecord::factor_bits},
    Field{"q", &PreDispatchRecord::q},
    Field{"s", &PreDispatchRecord::s},
    Field{"out_ids", &PreDispatchRecord::out_ids},
    Field{"out_weights", &PreDispatchRecord::out_weights},
};

void pre_dispatch(const PreDispatchRecord& record);

}  // namespace deep_gemm
