// An older target that a GPU stands in for: kernels of another architecture then run, and are tested and timed, on it.
#pragma once

#include <string>

namespace deep_gemm {

/// A target that code for a GPU is compiled for in place of the GPU's own.
struct TargetChoice {
    std::string target = "";  // "sm_80"; empty: the GPU's own
    int number = 0;           // 80
    int max_smem_bytes = 0;   // that GPUs of this target offer to a block
};

/// What DG_TARGET says, which holds until a call says otherwise. Throws where that is no target with kernels.
TargetChoice target_from_environment();

}  // namespace deep_gemm
