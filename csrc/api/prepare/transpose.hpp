// MN-major FP8 operands -> K-major copies.
#pragma once

#include <deep_gemm/kernels/transpose_params.cuh>

#include "../../jit/kernel.hpp"
#include "../call/call.hpp"
#include "../call/workspace.hpp"

namespace deep_gemm {

/// Kernels that transpose, except for K groups.
jit::KernelSources transpose_sources();

/// `source` is MN-major; `target` has its shape and is K-major. `k_tiles` tiles of 128 along K are written.
void launch_transpose(Device& device, const Matrix& source, const Matrix& target, int64_t k_tiles,
                      const KGroupLayout* k_groups, void* stream);

/// The operand itself where it is K-major, else a K-major copy in `workspace`, made on `stream`. Rows of the copy are
/// 128 bytes aligned.
Matrix require_k_major(Device& device, const Matrix& matrix, void* stream, Workspace& workspace);

}  // namespace deep_gemm
