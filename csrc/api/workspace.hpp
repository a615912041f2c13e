// Memory of one call, from torch's allocator on its current stream: legal while a CUDA graph is captured, and may be
// released as soon as the kernel that reads it has been launched.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <cstdint>
#include <optional>

#include "../device/device.hpp"

namespace deep_gemm {

using Workspace = std::optional<tvm::ffi::Tensor>;

inline tvm::ffi::Tensor allocate_bytes(const Device& device, int64_t bytes) {
    const DLDevice dl = device.id().simulated ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, device.id().index};
    return tvm::ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, {bytes}, DLDataType{kDLUInt, 8, 1}, dl);
}

}  // namespace deep_gemm
