// NVRTC, NVIDIA's compiler as a library: opened at the first compilation, found in torch, PyPI, a toolkit or the
// system.
#pragma once

#include "compile.hpp"

namespace deep_gemm::jit::nvrtc {

const std::string& identity();
std::string library_path();
std::vector<std::string> options(const std::string& target, Output output);
Compiled compile(const CompileJob& job);

}  // namespace deep_gemm::jit::nvrtc
