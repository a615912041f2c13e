// Products with FP4 where FP4 is multiplied as it lies, in rows: both operands; or weights beside FP8, as the
// public pair or as PackedWeights of such rows.
#pragma once

#include "checks.hpp"

namespace deep_gemm {

/// The element that weights of four bits are multiplied as beside `a`: of the public pair rows where the architecture
/// has such a pair, and takes FP32 scales for powers of two or is given exponents; what they are packed as otherwise.
/// Refuses PackedWeights of another architecture's order.
Element weights_element(Arch arch, Element a, const OperandArgument& b, bool exponents);

/// Of an operand by its dtype; of both operands of FP4 with FP4 rows of codes.
Element element_of(const OperandArgument& operand, DLDataType type);

/// Codes of FP4 with FP4, two a byte along K.
Matrix rows_of_fp4(const OperandArgument& operand, bool grouped);

/// Codes of a public pair, two a byte along the dimension that is contiguous: K, or `mn`.
Matrix fp4_pair(const OperandArgument& operand, bool grouped, bool transposed, const char* mn);

/// Codes of the public pair of weights, or of PackedWeights.
Matrix fp4_rows(const OperandArgument& operand, const char* name, bool grouped, bool transposed);

/// How activations lie, and the scales of both operands.
void check_fp4_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b,
                        const OperandLayout& layout);

}  // namespace deep_gemm
