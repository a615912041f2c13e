// Memory of one call, from torch's allocator on its current stream: legal while a CUDA graph is captured, and may be
// released as soon as the kernel that reads it has been launched.
#pragma once

#include <tvm/ffi/c_api.h>

#include <cstdint>
#include <utility>

#include "../../device/device.hpp"

namespace deep_gemm {

/// Empty until `allocate_bytes` fills it.
class Workspace {
public:
    Workspace() = default;
    explicit Workspace(TVMFFIObjectHandle tensor) : tensor_(tensor) {}
    Workspace(Workspace&& other) noexcept : tensor_(std::exchange(other.tensor_, nullptr)) {}
    Workspace& operator=(Workspace&& other) noexcept {
        std::swap(tensor_, other.tensor_);
        return *this;
    }
    ~Workspace() {
        if (tensor_ != nullptr) TVMFFIObjectDecRef(tensor_);
    }

    explicit operator bool() const { return tensor_ != nullptr; }
    char* data() const { return static_cast<char*>(TVMFFITensorGetDLTensorPtr(tensor_)->data); }

private:
    TVMFFIObjectHandle tensor_ = nullptr;
};

Workspace allocate_bytes(const Device& device, int64_t bytes);

}  // namespace deep_gemm
