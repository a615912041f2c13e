// What the runtime may ask of whoever lent the tensors of this thread's call (csrc/lending_api.cpp).
#pragma once

namespace deep_gemm {

/// Refuses tensors whose memory does not hold their values: torch's negative bit, which DLPack cannot say. Asks Python,
/// so it belongs to the cold path: a call that is remembered was asked when it was made ready.
void require_plain_tensors();

}  // namespace deep_gemm
