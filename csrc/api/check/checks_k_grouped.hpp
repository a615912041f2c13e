// Checks of K-grouped products: D[g] = C[g] + A[K range of g] B[K range of g].T.
#pragma once

#include <span>
#include <vector>

#include "checks.hpp"

namespace deep_gemm {

/// Entries that groups of such K have in all, one for every `entry_k` of each.
int64_t entries_of(std::span<const int64_t> ks, int64_t entry_k);

struct KGroupedCall {
    GemmCall call = {};
    std::vector<int64_t> ks;      // sizes of the groups along K; empty where only the device knows them
    int64_t k_blocks = 0;         // of 128, all groups together, or as many as there can be
    bool group_by_group = false;  // each group is a matrix of its own: nt [M, k_g], or as it lies [k_g, M]
};

/// What both layouts take beside the tensors.
struct KGroupedOptions {
    std::span<const int64_t> ks;
    int64_t layout;
    bool psum;
    int64_t gran_k;  // elements of K that share a scale
};

/// A is [sum_k, M] and B [sum_k, N]. Without `ks` (FP8 in the psum layout only) the scales say how many blocks there
/// are.
KGroupedCall check_k_grouped_tn(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                                const TensorView& grouped_layout, const OptionalTensor& c,
                                const KGroupedOptions& options);

/// A and B flattened, group by group [M, k_g] and [N, k_g].
KGroupedCall check_k_grouped_nt(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                                const TensorView& grouped_layout, const OptionalTensor& c,
                                const KGroupedOptions& options);

}  // namespace deep_gemm
