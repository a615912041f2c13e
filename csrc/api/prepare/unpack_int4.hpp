// Activations of four bits -> what a product's kernel reads: bytes, where the tensor cores multiply no four bits.
#pragma once

#include "../../jit/kernel.hpp"
#include "../call/call.hpp"
#include "../call/workspace.hpp"

namespace deep_gemm {

jit::KernelSource unpack_int4_source(Element element);

/// A matrix of bytes that hold two neighbours along K each, as one of this element, s8 or s4i, in `workspace`.
Matrix unpack_int4(Device& device, const Matrix& matrix, Element element, void* stream, Workspace& workspace);

}  // namespace deep_gemm
