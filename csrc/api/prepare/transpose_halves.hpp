// MN-major operands of 16 bits -> K-major copies.
#pragma once

#include "../../jit/kernel.hpp"
#include "../call/call.hpp"
#include "../call/workspace.hpp"

namespace deep_gemm {

/// A K-major copy in `workspace`, made on `stream`, in rows of whole tiles that start at multiples of 128 bytes.
Matrix transpose_halves(Device& device, const Matrix& matrix, void* stream, Workspace& workspace);

}  // namespace deep_gemm
