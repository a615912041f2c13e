// nvcc, the compiler of a CUDA toolkit, run as a program. It also needs a host compiler (g++).
#pragma once

#include "compile.hpp"

namespace deep_gemm::jit::nvcc {

const std::string& identity();
std::vector<std::string> options(const std::string& target, Output output);
Compiled compile(const CompileJob& job);

}  // namespace deep_gemm::jit::nvcc
