// What a call's row counts say: a grouped_layout or masked_m that no right caller hands over is refused, where the host
// may read it. CPU tensors always are read; those of a GPU with DG_CHECK_LAYOUTS, which waits for the stream.
#pragma once

#include "../call/call.hpp"

namespace deep_gemm {

/// Whether a call's counts are read before it is launched. What they say may change from call to call, so such a call
/// is made ready each time.
bool reads_counts(const GemmCall& call);

/// Nothing may have been launched or written yet. Nothing is read while the stream is captured: no one may wait for it.
void check_counts(const GemmCall& call);

}  // namespace deep_gemm
