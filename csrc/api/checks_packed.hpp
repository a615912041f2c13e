// Products with weights of four bits: those that PackedWeights has made, and pairs of the public API.
#pragma once

#include "checks_whole_scales.hpp"

namespace deep_gemm {

/// Whether codes lie two a byte, [N, K / 2], as the public API has them, and not in blocks, which are uint8.
inline bool is_unpacked(const TensorView& codes) { return is_dtype(codes.dtype(), kDLInt, 8); }

/// The weights of that many rows and that much of K, of each group.
Matrix packed_matrix(const OperandArgument& operand, const char* name, bool grouped);

/// How activations lie, and the scales of both operands.
void check_packed_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b);

}  // namespace deep_gemm
