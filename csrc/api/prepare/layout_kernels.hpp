// Kernels that rearrange what calls bring before products read it, for precompiling.
#pragma once

#include "../../config/candidate.hpp"
#include "../../jit/kernel.hpp"

namespace deep_gemm {

/// All that calls of a problem may launch ahead of its kernel because operands and scales lie otherwise. Not what packs
/// weights.
jit::KernelSources layout_kernels(const Problem& p, const Choice& choice);

}  // namespace deep_gemm
