// What code for a GPU is compiled for: its own target, or an older one that it stands in for, so that kernels of
// another architecture run, and are tested and timed, on it. Which targets there are is no device's matter: whoever
// starts the library says it.
#pragma once

#include <string>

namespace deep_gemm {

/// A target that code for a GPU is compiled for in place of the GPU's own.
struct TargetChoice {
    std::string target = "";  // "sm_80"; empty: the GPU's own
    int number = 0;           // 80
    int max_smem_bytes = 0;   // that GPUs of this target offer to a block
};

/// What a GPU loads.
struct GpuTarget {
    std::string target;
    bool translated = false;  // by the driver, from PTX: there is no machine code for this GPU
};

/// The targets that there are kernels for.
struct KnownTargets {
    /// Of a GPU's name and compute capability. Throws where it is older than all that there are kernels for.
    GpuTarget (*of_gpu)(const std::string& name, int major, int minor) = nullptr;
    /// What DG_TARGET says, which holds until a call says otherwise. Throws where that is no target with kernels.
    TargetChoice (*from_environment)() = nullptr;
};

/// Before any device is used.
void set_known_targets(const KnownTargets& targets);
const KnownTargets& known_targets();

}  // namespace deep_gemm
