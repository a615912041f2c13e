// Scales -> the layout that the kernel reads. Per-row scales come through the copy engine, which wants them MN-major
// with K columns 16 bytes apart; per-block scales are read as they lie. E8M0 becomes FP32.
#pragma once

#include "call.hpp"
#include "workspace.hpp"

namespace deep_gemm {

/// The scales themselves where the kernel can read them, else a copy in `workspace`, made on `stream`.
void require_layout(Device& device, Scales& s, void* stream, Workspace& workspace);

}  // namespace deep_gemm
