// E4M3 -> FP16 ahead of a product, where its kernel wants it (Tiling::ahead).
#pragma once

#include "call.hpp"
#include "workspace.hpp"

namespace deep_gemm {

/// Operands as such a kernel reads them, in workspaces, made on `stream`: A, of masked experts the rows that they have,
/// and B.
Matrix widen_a(Device& device, const GemmCall& call, void* stream, Workspace& workspace);
Matrix widen_b(Device& device, const GemmCall& call, void* stream, Workspace& workspace);

}  // namespace deep_gemm
