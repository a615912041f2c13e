// Checks of products of batches of matrices, which an einsum expression names.
#pragma once

#include "checks.hpp"

namespace deep_gemm {

/// An expression, and which dimension of a tensor is which of the product's.
struct BatchedForm {
    const char* expression;
    Axes a, b, d;
    const char *shape_a, *shape_b, *shape_d;
    int64_t compiled_dims;  // all but the number of tokens
};

inline constexpr BatchedForm kBatchedForms[] = {
    {"bhr,hdr->bhd", {1, 0, 2}, {0, 1, 2}, {1, 0, 2}, "[b, h, r]", "[h, d, r]", "[b, h, d]", kCompileN | kCompileK},
    {"bhd,hdr->bhr", {1, 0, 2}, {0, 2, 1}, {1, 0, 2}, "[b, h, d]", "[h, d, r]", "[b, h, r]", kCompileN | kCompileK},
    {"bhd,bhr->hdr", {1, 2, 0}, {1, 2, 0}, {0, 1, 2}, "[b, h, d]", "[b, h, r]", "[h, d, r]", kCompileM | kCompileN},
};

/// The sum over a batch: the form whose number comes after those.
inline constexpr const char* kBatchSum = "bmk,bnk->mn";

/// D[g] = C[g] + A[g] B[g].T, with groups, rows and columns where the form has them.
GemmCall check_batched(const BatchedForm& form, const OperandArgument& a, const OperandArgument& b,
                       const OutputArgument& d, const OptionalTensor& c, const Granularities& given,
                       const GateRecord& gate);

/// D = C + sum of A[g] B[g].T, of operands without scales.
GemmCall check_batch_sum(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                         const OptionalTensor& c);

}  // namespace deep_gemm
