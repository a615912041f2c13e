// Where SMs begin, as the public function of paged index logits gives it.
#pragma once

#include "../util/tensor_view.hpp"

namespace deep_gemm {

/// lengths int32 [requests, next_n] or [requests] -> starts int32 [SMs + 1, 2].
void make_logits_metadata(const TensorView& lengths, const TensorView& starts);

}  // namespace deep_gemm
