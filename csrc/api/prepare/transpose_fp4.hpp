// MN-major FP4 operands -> K-major copies.
#pragma once

#include "../../jit/kernel.hpp"
#include "../call/call.hpp"
#include "../call/workspace.hpp"

namespace deep_gemm {

jit::KernelSources transpose_fp4_sources();

/// A K-major copy of codes in `workspace`, made on `stream`, in rows of whole tiles that start at multiples of 128
/// bytes.
Matrix transpose_fp4(Device& device, const Matrix& codes, void* stream, Workspace& workspace);

}  // namespace deep_gemm
