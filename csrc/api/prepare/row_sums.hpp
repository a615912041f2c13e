// Sums of B's rows, which zero points of A are multiplied by. Packed weights bring theirs, and callers those of weights
// that stay; of others they are computed for each call.
#pragma once

#include "../../jit/kernel.hpp"
#include "../call/call.hpp"
#include "../call/workspace.hpp"

namespace deep_gemm {

/// The kernel that adds up rows of B, if such a problem wants that.
jit::KernelSources row_sums_sources(const Problem& p);

/// Makes them on `stream`, of a B as the kernel reads it, where the call wants them and has none.
void require_row_sums(Device& device, GemmCall& call, void* stream, Workspace& workspace);

/// The same by itself, of a B that lies anywhere: `sums` are [groups, rows], contiguous, FP32 if there are `scales`.
void make_row_sums(Device& device, const Matrix& b, const Scales* scales, void* sums, void* stream);

}  // namespace deep_gemm
