// The GEMM kernel of sm_120a and sm_121a: SM80's roles (kernels/gemm_sm80.cuh), with what these chips multiply.
//
//   copy        by the copy engine, where operands are K-major and not packed; else as SM80. FP4 beside FP8 comes, by
//               threads, 16 codes to 16 bytes of a stage, from where it is loaded as bytes
//   multiply    scales that are bytes enter the instruction (mma/sm120/); FP32 ones are promoted, as on SM80
//   store       as SM80
#pragma once

#include <deep_gemm/mma/sm120/multiply.cuh>
// What is multiplied comes before the roles that multiply it.
#include <deep_gemm/kernels/gemm_sm80.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
DG_DEVICE void run_gemm_sm120(const GemmParams& params) {
    sm80::run_gemm<c>(params);
}

}  // namespace deep_gemm
