// Index logits, as deep_gemm/logits.py calls them. Results are allocated there; here they are checked and filled.
#include "logits/check.hpp"
#include "logits/metadata.hpp"
#include "logits/plan.hpp"
#include "logits/run.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

/// q [rows, heads, D], keys [keys, D] -> logits [rows, columns].
void mqa_logits(const TensorView& q, const OptionalTensor& q_scales, const TensorView& keys, const TensorView& scales,
                const TensorView& weights, const TensorView& first_keys, const TensorView& end_keys,
                const TensorView& logits, bool compressed, bool cleaned) {
    run_logits(check_dense_logits({q, q_scales, weights, logits, cleaned}, keys, scales, first_keys, end_keys,
                                  compressed));
}

/// q [requests, next_n, heads, D], keys in blocks -> logits [requests * next_n, columns].
void paged_mqa_logits(const TensorView& q, const OptionalTensor& q_scales, const TensorView& cache,
                      const TensorView& weights, const TensorView& lengths, const TensorView& block_table,
                      const TensorView& logits, bool cleaned) {
    run_logits(check_paged_logits({q, q_scales, weights, logits, cleaned}, cache, lengths, block_table));
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(mqa_logits, deep_gemm::mqa_logits);
DEEP_GEMM_EXPORT(paged_mqa_logits, deep_gemm::paged_mqa_logits);
DEEP_GEMM_EXPORT(paged_mqa_logits_metadata, deep_gemm::make_logits_metadata);
DEEP_GEMM_EXPORT(force_logits_products, deep_gemm::force_logits_products);
