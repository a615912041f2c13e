// Checks of K-grouped products: D[g] = C[g] + A[K range of g] B[K range of g].T.
#pragma once

#include <span>
#include <vector>

#include "checks.hpp"

namespace deep_gemm {

struct KGroupedCall {
    GemmCall call = {};
    std::vector<int64_t> ks;      // sizes of the groups along K; empty where only the device knows them
    int64_t k_blocks = 0;         // of 128, all groups together
    bool group_by_group = false;  // each group is a matrix of its own: FP8 nt [M, k_g], BF16 [k_g, M]
};

/// A is [sum_k, M] and B [sum_k, N]. Without `ks` (FP8 in the psum layout only) the scales say how many blocks there
/// are.
KGroupedCall check_k_grouped_tn(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                                std::span<const int64_t> ks, const TensorView& grouped_layout, const OptionalTensor& c,
                                int64_t layout, bool psum);

/// A and B flattened, group by group [M, k_g] and [N, k_g].
KGroupedCall check_k_grouped_nt(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                                std::span<const int64_t> ks, const TensorView& grouped_layout, const OptionalTensor& c,
                                int64_t layout, bool psum);

}  // namespace deep_gemm
