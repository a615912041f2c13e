// Operands that the kernel cannot read where they lie -> copies that it can. What it wants K-major is transposed; lines
// that do not start at multiples of 16 bytes, which the copy engine cannot read, are copied into ones that do.
#pragma once

#include "../../jit/kernel.hpp"
#include "../call/call.hpp"
#include "../call/workspace.hpp"

namespace deep_gemm {

/// Kernels that copy operands of these elements into other lines.
jit::KernelSources copy_lines_sources(Element element);

/// The operand itself, or a copy in `workspace`. Lines of copies start at multiples of 128 bytes. `other` is the other
/// operand's element.
Matrix require_readable(Device& device, const Matrix& matrix, const Operand& wanted, Element other, void* stream,
                        Workspace& workspace);

/// The same of matrices flattened one after the other, which have no gaps: `matrix` tells where they begin and end.
void require_readable_flat(Device& device, Matrix& matrix, Element type, void* stream, Workspace& workspace);

}  // namespace deep_gemm
