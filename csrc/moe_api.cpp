// A MoE layer's products in one launch, as deep_gemm/mega_moe.py calls them.
#include <bit>

#include "moe/layer.hpp"
#include "moe/pre_dispatch.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

void moe_layer(const TensorView& rows, const OptionalTensor& row_scales, const TensorView& up,
               const OptionalTensor& up_scales, const TensorView& down, const OptionalTensor& down_scales,
               const TensorView& ends, const TensorView& row_weights, const TensorView& inner,
               const OptionalTensor& inner_scales, const TensorView& out, const TensorView& ready, int64_t expected_m,
               const ffi::Integers& gate) {
    run_moe_layer({rows, row_scales, up, up_scales, down, down_scales, ends, row_weights, inner, inner_scales, out,
                   ready},
                  expected_m, gate);
}

/// `range`: first token, tokens of each rank, choices of a token.
void moe_layer_of_ranks(const ffi::Integers& ranks, const TensorView& calls, const TensorView& source,
                        const TensorView& pulled, const ffi::Integers& range, const TensorView& rows,
                        const OptionalTensor& row_scales, const TensorView& up, const OptionalTensor& up_scales,
                        const TensorView& down, const OptionalTensor& down_scales, const TensorView& ends,
                        const TensorView& row_weights, const TensorView& inner, const OptionalTensor& inner_scales,
                        const TensorView& out, const TensorView& ready, int64_t expected_m, const ffi::Integers& gate) {
    const MoeLayerTravel travel{{ranks, calls}, source, pulled, {range[0], range[1], range[2]}};
    run_moe_layer({rows, row_scales, up, up_scales, down, down_scales, ends, row_weights, inner, inner_scales, out,
                   ready},
                  expected_m, gate, &travel);
}

void hand_over(const TensorView& x, const TensorView& ids, const TensorView& weights, const TensorView& q,
               const TensorView& s, const TensorView& out_ids, const TensorView& out_weights, int64_t factor_bits) {
    pre_dispatch({x, ids, weights, q, s, out_ids, out_weights},
                 std::bit_cast<float>(static_cast<uint32_t>(factor_bits)));
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(pre_dispatch, deep_gemm::hand_over);
DEEP_GEMM_EXPORT(moe_layer, deep_gemm::moe_layer);
DEEP_GEMM_EXPORT(moe_layer_of_ranks, deep_gemm::moe_layer_of_ranks);
