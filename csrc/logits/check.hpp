// Tensors -> a checked call of index logits, or an error that says what was wanted and what came.
#pragma once

#include "call.hpp"

namespace deep_gemm {

/// Heads, D, elements and blocks that there are kernels for.
void require_kinds(const LogitsCall& call);

/// What both forms have: queries [rows, heads, D] or [requests, rows of each, heads, D].
struct LogitsQueries {
    const TensorView& queries;
    const OptionalTensor& exponents;
    const TensorView& weights;
    const TensorView& logits;
    bool cleaned;
};

/// keys [keys, D], their scales [keys]; FP32, or int32 words of exponents beside queries that have such. Column 0 of
/// logits is each row's first key if `compressed`.
LogitsCall check_dense_logits(const LogitsQueries& given, const TensorView& keys, const TensorView& scales,
                              const TensorView& first_keys, const TensorView& end_keys, bool compressed);

/// cache uint8 [blocks, keys of a block, 1, bytes of a key]: of each block all codes, then all scales. lengths
/// [requests, rows of each] or [requests].
LogitsCall check_paged_logits(const LogitsQueries& given, const TensorView& cache, const TensorView& lengths,
                              const TensorView& block_table);

}  // namespace deep_gemm
