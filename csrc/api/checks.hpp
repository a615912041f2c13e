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

/// Weights that PackedWeights has made: what its tensors do not say themselves.
struct PackedArgument {
    Element element = Element::none;
    int64_t rows = 0, k = 0;
    int64_t group_k = 0;  // of K that shares a scale; 0: all of it
    bool grouped = false;
    const OptionalTensor* sums = nullptr;  // of its rows
    const OptionalTensor* second_scales = nullptr;
    int64_t zeros_k = 0;  // of K that shares a word of `zeros`; 0: all of it
    OptionalTensor zeros = {};
    int64_t tokens_k = 0;  // of K that shares a scale of a's, as a recipe says; 0: none does
};

/// In the place of a number's bits: there is none.
inline constexpr int64_t kNoNumber = -1, kNoZero = int64_t{1} << 32;

/// An operand whose scales all of K may share, so that they may be a number too: its bits as FP32. Of integers with
/// zero points these, or one for all.
struct WholeArgument {
    int64_t scale = kNoNumber, zero = kNoZero;
    const OptionalTensor* zeros = nullptr;
    const OptionalTensor* sums = nullptr;  // of B's rows, which zero points of A are multiplied by
    bool int4 = false;                     // two integers a byte

    bool asymmetric() const { return zero != kNoZero || (zeros != nullptr && zeros->has_value()); }
};

/// An operand as it was given, with its scales where it has some.
struct OperandArgument {
    const TensorView& data;
    const OptionalTensor& scales;
    const PackedArgument* packed = nullptr;
    const WholeArgument* whole = nullptr;
    const char *name = "b", *scales_name = "b's scales", *sums_name = "b_sums";  // as the call's function calls them
    bool fp4 = false;         // int8 of two E2M1 codes each along K, rows of Element::e2m1r
    bool either_way = false;  // of `fp4`: two along M are taken, too

    bool scaled() const { return scales.has_value() || (whole != nullptr && whole->scale != kNoNumber); }
    const TensorView* sums() const {
        return whole == nullptr || whole->sums == nullptr || !*whole->sums ? nullptr : &**whole->sums;
    }
};

/// K as the data of activations have it.
inline int64_t k_of(const Matrix& a, const OperandArgument& argument) {
    return a.cols * (argument.whole != nullptr && argument.whole->int4 ? 2 : 1);
}

/// Whether the call is one of plain integers, which may have no scales at all.
inline bool takes_integers(const OperandArgument& a, const OperandArgument& b) {
    return a.whole != nullptr && b.packed == nullptr;
}

/// A, which may have two elements a byte: rows, K, and groups before them where there are any.
Matrix matrix_of_a(const OperandArgument& a, bool grouped, const Printed& shape, bool transposed = false);

/// B, which may be packed too.
Matrix matrix_of(const OperandArgument& operand, Element element, bool grouped, const Printed& shape,
                 bool transposed = false);

/// A call on the device of `a`, of a pair of formats that this device multiplies in such groups. `fp32_scales`: scales
/// must be multiplied as they are, whatever is set.
GemmCall start_call(const OperandArgument& a, const OperandArgument& b, Grouping grouping, bool fp32_scales = false);

/// The pair of a call that was started.
const Pair& pair_of(const Problem& problem);

/// Rows of an operand, 1 or 128, and elements of K, 128 or 32, that share a scale.
struct Granularity {
    int64_t rows = 1, k = kScaleGroupK;
};

/// B's scales say themselves how many rows share one: words of exponents are per row, others per block.
inline constexpr int64_t kRowsByDefault = 0;

struct Granularities {
    Granularity a = {}, b = {.rows = kRowsByDefault};

    /// All of it in a number, for a call's key.
    uint64_t number() const {
        const auto part = [](int64_t value) { return static_cast<uint64_t>(value) & 0xffff; };
        return part(a.rows) | part(a.k) << 16 | part(b.rows) << 32 | part(b.k) << 48;
    }
};

/// D, and C where there is one: same shape and dtype, N contiguous.
void check_output(GemmCall& call, const TensorView& d, const OptionalTensor& c, const Axes& axes, const char* shape);

void require_operands_apart(const TensorView& d, const OperandArgument& a, const OperandArgument& b);

/// An operand as its scales see it.
struct ScaledOperand {
    const char *name, *scales_name;
    int64_t groups, rows, k;
    Scaling scaling;          // as the kernel wants scales
    int64_t row_granularity;  // as they are given
};

Scales check_scales(const TensorView& sf, const ScaledOperand& operand, const GemmCall& call, const Axes& axes);

/// Elements of K that an entry of scales is for: one scale, or the exponents of a word.
int64_t entry_k(Element lying, const Scaling& scaling);

/// How scales are shared, as kernels of the pair want them, or an error where none does.
void set_scalings(Problem& problem, const Granularities& given);

/// The scales of both operands.
void check_scales(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const Granularities& given,
                  const Axes& axes_a, const Axes& axes_b);

// Bits of a `layout`, which deep_gemm/gemm.py sets: extents to compile in, and operands that lie the other way round.
inline constexpr int64_t kCompileM = 1, kCompileN = 2, kCompileK = 4;
inline constexpr int64_t kATransposed = 8, kBTransposed = 16;
inline constexpr int64_t kFp32Scales = 32;  // must be multiplied as they are

inline CompiledShape compiled_shape(const Problem& p, int64_t layout) {
    return {.m = layout & kCompileM ? p.m : 0, .n = layout & kCompileN ? p.n : 0, .k = layout & kCompileK ? p.k : 0};
}

/// How the last two dimensions of A and B are named: [M, K] and [N, K] unless said otherwise.
struct OperandLayout {
    bool a_transposed = false;  // A is [K, M]
    bool b_transposed = false;  // B is [K, N]
    bool fp32_scales = false;   // disable_ue8m0_cast
};

inline OperandLayout operand_layout(int64_t bits) {
    return {.a_transposed = (bits & kATransposed) != 0,
            .b_transposed = (bits & kBTransposed) != 0,
            .fp32_scales = (bits & kFp32Scales) != 0};
}

/// What dense products share: shapes, D and C.
void check_dense_shapes(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                        const OptionalTensor& c, int64_t layout, const HeadSplits& heads = {});

/// How the lines of both operands lie.
void check_lines(GemmCall& call, const char* name_b = "b");

/// What dense and M-grouped products share once shapes are known: strides, and scales where there are any.
void check_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const Granularities& given,
                    const OperandLayout& layout);

/// D[M, N] = C + A[M, K] B[N, K].T
GemmCall check_dense(const OperandArgument& a, const OperandArgument& b, const TensorView& d, const OptionalTensor& c,
                     const Granularities& given, int64_t layout, const HeadSplits& heads = {});

/// Three numbers of columns, of which the outer ones are not both 0.
HeadSplits check_head_splits(std::span<const int64_t> splits);

}  // namespace deep_gemm
