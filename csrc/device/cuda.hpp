// A GPU behind the CUDA driver.
#pragma once

#include "device.hpp"

namespace deep_gemm {

/// Opens GPU `index` (as torch counts them), for its own target or the chosen one, which it refuses if it cannot run
/// that one's code. `Device::get` calls this once for each device and target.
Device* open_cuda_device(int index, const TargetChoice& choice, int slot);

/// What the driver says of itself, for messages and `python -m deep_gemm`. Throws without a driver.
struct CudaDriverFacts {
    int version = 0;  // 13000 is CUDA 13.0
    int device_count = 0;
};
CudaDriverFacts cuda_driver_facts();

}  // namespace deep_gemm
