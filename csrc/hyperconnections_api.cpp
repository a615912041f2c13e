// The pre-norm product, as deep_gemm/hyperconnections.py calls it.
#include "hyperconnections/plan.hpp"
#include "hyperconnections/prenorm.hpp"
#include "util/ffi.hpp"

DEEP_GEMM_EXPORT(prenorm_gemm, deep_gemm::prenorm_gemm);
DEEP_GEMM_EXPORT(prenorm_splits, deep_gemm::prenorm_splits);
DEEP_GEMM_EXPORT(force_prenorm_plan, deep_gemm::force_prenorm_plan);
