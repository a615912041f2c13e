// Arguments -> a checked call, or an error that says what was wanted and what came. Nothing has been launched or
// written yet.
#pragma once

#include <optional>

#include "call.hpp"

namespace deep_gemm {

/// Distances between an operand's lines and groups, bitwise or, in bytes: 0 where there is one of each. A line runs
/// along K, or along M or N where the operand is MN-major.
uint64_t line_distances(const Matrix& matrix, ElementType type);

/// Whether the copy engine can read an operand where it lies. Elsewhere it is copied first: see operand_copies.hpp.
bool is_aligned(const Matrix& matrix, ElementType type);

/// Whether kernels read operands of this element along M or N as well. MN-major ones of others are transposed on the
/// way (operand_copies.hpp).
bool reads_mn_major(ElementType type);

/// Refuses what no kernel can read, as it lies or copied. Gives a single line, which may carry any stride, a legal one.
void require_operand(Matrix& matrix, ElementType type, const char* name, const char* mn);

/// Of an operand as the kernel will read it: where it lies, or a copy of it. By its strides alone, so that equal shapes
/// get equal kernels wherever they lie.
int32_t row_alignment(const Matrix& matrix, ElementType type);

/// An operand as it was given.
struct OperandArgument {
    const TensorView& data;
    const OptionalTensor& scales;
};

/// Rows of an operand that share a scale: 1 or 128.
struct Granularities {
    int64_t a = 1, b = 128;
};

/// What the operands are made of: a pair that there are kernels for.
void require_operand_types(GemmCall& call, const OperandArgument& a, const OperandArgument& b, Grouping grouping);

/// D, and C where there is one: same shape and dtype, N contiguous.
void check_output(GemmCall& call, const TensorView& d, const OptionalTensor& c, bool grouped, const char* shape);

void require_operands_apart(const TensorView& d, const OperandArgument& a, const OperandArgument& b);

/// `granularity` rows share a scale: 1 or 128. `transposed`: K comes first.
Scales check_scales(const TensorView& sf, const char* name, const char* operand, const GemmCall& call, int64_t groups,
                    int64_t rows, int64_t k, int64_t granularity, bool transposed = false);

// Bits of a `layout`, which deep_gemm/gemm.py sets: extents to compile in, and operands that lie the other way round.
inline constexpr int64_t kCompileM = 1, kCompileN = 2, kCompileK = 4;
inline constexpr int64_t kATransposed = 8, kBTransposed = 16;

inline CompiledShape compiled_shape(const Problem& p, int64_t layout) {
    return {.m = layout & kCompileM ? p.m : 0, .n = layout & kCompileN ? p.n : 0, .k = layout & kCompileK ? p.k : 0};
}

/// How the last two dimensions of A and B are named: [M, K] and [N, K] unless said otherwise.
struct OperandLayout {
    bool a_transposed = false;  // A is [K, M]
    bool b_transposed = false;  // B is [K, N]
};

inline OperandLayout operand_layout(int64_t bits) {
    return {.a_transposed = (bits & kATransposed) != 0, .b_transposed = (bits & kBTransposed) != 0};
}

/// What dense and M-grouped products share once shapes are known: strides, and scales where there are any.
void check_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const Granularities& rows,
                    const OperandLayout& layout);

/// D[M, N] = C + A[M, K] B[N, K].T
GemmCall check_dense(const OperandArgument& a, const OperandArgument& b, const TensorView& d, const OptionalTensor& c,
                     const Granularities& rows, int64_t layout);

}  // namespace deep_gemm
