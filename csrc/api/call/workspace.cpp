#include "workspace.hpp"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace deep_gemm {

Workspace allocate_bytes(const Device& device, int64_t bytes) {
    DLTensor wanted{};
    wanted.device = device.id().simulated ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, device.id().index};
    wanted.ndim = 1;
    wanted.dtype = {kDLUInt, 8, 1};
    wanted.shape = &bytes;
    TVMFFIObjectHandle tensor = nullptr;
    if (TVMFFIEnvTensorAlloc(&wanted, &tensor) != 0) throw tvm::ffi::detail::MoveFromSafeCallRaised();
    return Workspace(tensor);
}

}  // namespace deep_gemm
