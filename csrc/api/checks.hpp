// Arguments -> a checked call, or an error that says what was wanted and what came. Nothing has been launched or
// written yet.
#pragma once

#include <optional>
#include <span>

#include "../config/pairs.hpp"
#include "call.hpp"

namespace deep_gemm {

/// Distances between an operand's lines and groups, bitwise or, in bytes: 0 where there is one of each. A line runs
/// along K, or along M or N where the operand is MN-major.
uint64_t line_distances(const Matrix& matrix, const Operand& lying);

/// Whether the copy engine can read an operand where it lies. Elsewhere it is copied first: see operand_copies.hpp.
bool is_aligned(const Matrix& matrix, const Operand& lying);

/// Whether the kernel reads a transposed copy of an operand (operand_copies.hpp).
inline bool is_transposed(const Matrix& matrix, const Operand& wanted) {
    return wanted.major == Major::k && !is_k_major(matrix);
}

/// Refuses lines that no kernel of the pair's reads, and says how the kernel reads the others: `operand.major`.
void check_layout(Matrix& matrix, Operand& operand, MnMajor mn_major, const char* name, const char* mn);

/// Of an operand as the kernel will read it: where it lies, or a copy of it. By its strides alone, so that equal shapes
/// get equal kernels wherever they lie.
int32_t row_alignment(const Matrix& matrix, const Operand& wanted);

/// An operand as it was given, with its scales where it has some.
struct OperandArgument {
    const TensorView& data;
    const OptionalTensor& scales;
};

/// A call on the device of `a`, of a pair of formats that this device multiplies in such groups and adds up so.
GemmCall start_call(const OperandArgument& a, const OperandArgument& b, Grouping grouping, Element sum = Element::fp32);

/// The pair of a call that was started.
const Pair& pair_of(const Problem& problem);

/// Rows of an operand that share a scale: 1 or 128.
struct Granularities {
    int64_t a = 1, b = 128;
};

/// D, and C where there is one: same shape and dtype, N contiguous.
void check_output(GemmCall& call, const TensorView& d, const OptionalTensor& c, const Axes& axes, const char* shape);

void require_operands_apart(const TensorView& d, const OperandArgument& a, const OperandArgument& b);

Scales check_scales(const TensorView& sf, const char* name, const char* operand, const GemmCall& call, int64_t groups,
                    int64_t rows, int64_t k, const Scaling& scaling, const Axes& axes);

/// Groups come first, if there are any. `transposed`: K comes before rows.
inline Scales check_scales(const TensorView& sf, const char* name, const char* operand, const GemmCall& call,
                           int64_t groups, int64_t rows, int64_t k, const Scaling& scaling, bool transposed = false) {
    return check_scales(sf, name, operand, call, groups, rows, k, scaling,
                        last_axes(groups > 1 || sf.ndim() == 3, transposed));
}

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

/// What dense products share: shapes, D and C.
void check_dense_shapes(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                        const OptionalTensor& c, int64_t layout, const HeadSplits& heads = {});

/// How the lines of both operands lie.
void check_lines(GemmCall& call);

/// Whether the pair multiplies what is scaled so.
void check_scalings(const Problem& problem);

/// What dense and M-grouped products share once shapes are known: strides, and scales where there are any.
void check_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const Granularities& rows,
                    const OperandLayout& layout);

/// D[M, N] = C + A[M, K] B[N, K].T
GemmCall check_dense(const OperandArgument& a, const OperandArgument& b, const TensorView& d, const OptionalTensor& c,
                     const Granularities& rows, int64_t layout, const HeadSplits& heads = {});

/// Three numbers of columns, of which the outer ones are not both 0.
HeadSplits check_head_splits(std::span<const int64_t> splits);

}  // namespace deep_gemm
