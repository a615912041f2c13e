// Activations of four bits, which Hopper's tensor cores do not multiply -> bytes.
#pragma once

#include "call.hpp"
#include "workspace.hpp"

namespace deep_gemm {

/// A matrix of bytes that hold two neighbours along K each, as one of a byte for each in `workspace`.
Matrix unpack_int4(Device& device, const Matrix& matrix, void* stream, Workspace& workspace);

}  // namespace deep_gemm
