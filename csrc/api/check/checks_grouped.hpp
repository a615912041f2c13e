// Checks of products whose rows belong to experts: M-grouped contiguous (an index a row, or psum) and masked.
#pragma once

#include "checks.hpp"

namespace deep_gemm {

/// The device's own count of rows: int32, one dimension, contiguous.
void check_grouped_layout(GemmCall& call, const TensorView& layout, const char* name, int64_t size, const char* shape);

/// No element of a batch of matrices with contiguous rows lies in two of them.
void require_disjoint_groups(const Matrix& m, const char* name);

struct ContiguousOptions {
    bool psum = false;
    bool zero_padding = true;
    int64_t expected_m = 0;
};

/// D[rows of g] = A[rows of g] B[g].T, the experts' rows one after the other in A [M, K].
GemmCall check_contiguous(const OperandArgument& a, const OperandArgument& b, const OutputArgument& d,
                          const TensorView& grouped_layout, const Granularities& given, int64_t layout,
                          const ContiguousOptions& options, const GateRecord& gate = {});

/// D[g] = A[g] B[g].T for the first masked_m[g] rows of each expert.
GemmCall check_masked(const OperandArgument& a, const OperandArgument& b, const OutputArgument& d,
                      const TensorView& masked_m, int64_t expected_m, const Granularities& given, int64_t layout,
                      const GateRecord& gate = {});

}  // namespace deep_gemm
