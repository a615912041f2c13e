// Packed weights -> rows of what tensor cores multiply, before a product, where its kernel wants them (Preconvert::b).
#pragma once

#include "../../jit/kernel.hpp"
#include "../call/call.hpp"
#include "../call/workspace.hpp"

namespace deep_gemm {

/// The kernel that unpacks B of such a problem.
jit::KernelSource unpack_source(const Problem& p);

/// B, and its scales, as such a kernel reads them, in `workspace`, made on `stream`.
void unpack_b(Device& device, GemmCall& call, void* stream, Workspace& workspace);

}  // namespace deep_gemm
