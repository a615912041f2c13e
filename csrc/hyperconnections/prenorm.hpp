// The pre-norm product of hyperconnections.
#pragma once

#include "../util/tensor_view.hpp"

namespace deep_gemm {

/// a BF16 [M, K], b FP32 [N, K] -> d FP32 [M, N] and squares FP32 [M]; or with a dimension of splits in front of both,
/// of which each gets the sums of its part of K.
void prenorm_gemm(const TensorView& a, const TensorView& b, const TensorView& d, const TensorView& squares);

/// In how many splits a call without any is best made, and their sums added up by the caller: 1 where clusters divide
/// K.
int64_t prenorm_splits(const TensorView& a, const TensorView& b);

}  // namespace deep_gemm
