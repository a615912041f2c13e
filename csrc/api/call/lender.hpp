// What the runtime may want of whoever lent the tensors of this thread's call (csrc/borrowed_tensors_api.cpp).
#pragma once

#include "../../device/device.hpp"

namespace deep_gemm {

/// Torch's current stream on a device: the lender's, or the one that tvm-ffi was told.
void* current_stream(DeviceId id);

/// To be called before a call is made ready: memory for workspaces comes from the lender from then on, and tensors are
/// refused whose memory does not hold their values (torch's negative bit, which DLPack cannot say). A call that is
/// remembered needs neither.
void begin_cold_call();

}  // namespace deep_gemm
