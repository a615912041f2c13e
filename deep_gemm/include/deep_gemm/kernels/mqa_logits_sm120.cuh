// Index logits of sm_120a and sm_121a: SM80's kernel, with exponents in the instruction.
#pragma once

#include <deep_gemm/mma/sm120/logits.cuh>
// What is multiplied comes before the kernel that multiplies it.
#include <deep_gemm/kernels/mqa_logits_sm80.cuh>

namespace deep_gemm {

template <Constant<LogitsConfig> c>
DG_DEVICE void run_mqa_logits_sm120(const LogitsParams& params) {
    run_mqa_logits_sm80<c>(params);
}

}  // namespace deep_gemm
