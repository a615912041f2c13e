// E4M3 -> FP16 before a product, where its kernel wants it (Preconvert::a).
#pragma once

#include "../../jit/kernel.hpp"
#include "../call/call.hpp"
#include "../call/workspace.hpp"

namespace deep_gemm {

jit::KernelSource widen_source();

/// A as such a kernel reads it, in `workspace`, made on `stream`; of masked experts the rows that they have.
Matrix widen_a(Device& device, const GemmCall& call, void* stream, Workspace& workspace);

}  // namespace deep_gemm
