// Scales -> the layout that the kernel reads. Per-row scales come through the copy engine, which wants them MN-major
// with K columns 16 bytes apart; per-block scales are read as they lie. Where the kernel multiplies FP32, E8M0 becomes
// that; where it multiplies exponents, all become words of four for each row, MN-major or in blocks of rows.
#pragma once

#include "../../jit/kernel.hpp"
#include "../call/call.hpp"
#include "../call/workspace.hpp"

namespace deep_gemm {

/// Kernels that bring such scales of so many K into the layout that products read, whatever they come as.
jit::KernelSources scale_sources(const Scaling& scaling, int32_t k, bool in_blocks);

/// The scales themselves where the kernel can read them, else a copy in `workspace`, made on `stream` where there is
/// none yet.
void require_layout(Device& device, Scales& s, bool in_blocks, void* stream, Workspace& workspace);

/// The same of K groups, whose words are packed group by group. `k_words`: the most that they can be.
void require_k_grouped_layout(Device& device, Scales& s, const KGroupLayout& groups, int64_t k_words, void* stream,
                              Workspace& workspace);

}  // namespace deep_gemm
