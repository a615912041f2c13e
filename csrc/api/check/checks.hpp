// Arguments -> a checked call, or an error that says what was wanted and what came. Nothing has been launched or
// written yet.
#pragma once

#include <optional>
#include <span>

#include "../../config/pairs.hpp"
#include "../call/arguments.hpp"
#include "checks_gate.hpp"
#include "checks_scales.hpp"

namespace deep_gemm {

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

/// D, and C where there is one: same shape and dtype, N contiguous.
void check_output(GemmCall& call, const OutputArgument& d, const OptionalTensor& c, const Axes& axes,
                  const char* shape);

void require_operands_apart(const OutputArgument& d, const OperandArgument& a, const OperandArgument& b);

// Bits of a `layout`, which deep_gemm/fp8.py sets: extents to compile in, and operands that lie the other way round.
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
void check_dense_shapes(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const OutputArgument& d,
                        const OptionalTensor& c, int64_t layout, const HeadSplits& heads = {},
                        const GateRecord& gate = {});

/// What dense and M-grouped products share once shapes are known: strides, and scales where there are any.
void check_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const Granularities& given,
                    const OperandLayout& layout);

/// D[M, N] = C + A[M, K] B[N, K].T
GemmCall check_dense(const OperandArgument& a, const OperandArgument& b, const OutputArgument& d,
                     const OptionalTensor& c, const Granularities& given, int64_t layout, const HeadSplits& heads = {},
                     const GateRecord& gate = {});

/// Three numbers of columns, of which the outer ones are not both 0.
HeadSplits check_head_splits(std::span<const int64_t> splits);

}  // namespace deep_gemm
