// Sums of B's rows, which zero points of A are multiplied by. Packed weights bring theirs; of others they are computed
// for each call.
#pragma once

#include "call.hpp"
#include "workspace.hpp"

namespace deep_gemm {

/// Makes them on `stream`, of a B as the kernel reads it, where the call wants them and has none.
void require_row_sums(Device& device, GemmCall& call, void* stream, Workspace& workspace);

}  // namespace deep_gemm
