// Products with weights of four bits: those that PackedWeights has made, and pairs of the public API.
#pragma once

#include "checks_channel_scales.hpp"

namespace deep_gemm {

/// Whether FP4 codes lie two a byte, [N, K / 2], as the public API has them.
inline bool is_fp4_pairs(const TensorView& codes) { return is_dtype(codes.dtype(), kDLInt, 8); }

/// Whether weights lie so, or as E4M3 [N, K], and not in blocks, which are uint8.
inline bool is_unpacked(const TensorView& codes) {
    return is_fp4_pairs(codes) || is_dtype(codes.dtype(), kDLFloat8_e4m3fn, 8);
}

/// Codes of PackedWeights, groups of so many bytes without gaps, in any number of dimensions.
void require_codes(const TensorView& codes, const char* name, int64_t bytes);

/// The weights of that many rows and that much of K, of each group.
Matrix packed_matrix(const OperandArgument& operand, const char* name, bool grouped);

/// Scales as packing writes them: [groups, K groups, padded rows].
Scales check_packed_scales(const TensorView& scales, const char* name, const GemmCall& call,
                           const PackedArgument& packed, const Scaling& scaling);

/// How activations lie, and the scales of both operands.
void check_packed_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b);

}  // namespace deep_gemm
