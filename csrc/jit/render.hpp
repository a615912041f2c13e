// The source of a kernel: what a person would write by hand for this config.
#pragma once

#include <string>

#include "../config/candidate.hpp"
#include "kernel.hpp"

namespace deep_gemm {

/// A config as designated initialisers.
std::string config_text(const GemmConfig& config);

jit::KernelSource render(const Choice& choice);

}  // namespace deep_gemm
