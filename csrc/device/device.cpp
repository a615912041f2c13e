#include "device.hpp"

#include <array>
#include <atomic>
#include <mutex>

#include "../util/require.hpp"
#include "cuda.hpp"
#if __has_include("simulator/simulator_device.hpp")
#include "simulator/simulator_device.hpp"
#define DEEP_GEMM_HAS_SIMULATOR 1
#endif

namespace deep_gemm {
namespace {

constexpr int kMaxCudaDevices = 64;

Device* find_cuda_device(int index) {
    // A warm look-up is one load. Constant-initialised, so that it works whatever runs before main.
    static std::array<std::atomic<Device*>, kMaxCudaDevices> devices{};
    static std::mutex opening;
    require(index >= 0 && index < kMaxCudaDevices, "CUDA device ", index, " does not exist");
    auto& slot = devices[static_cast<size_t>(index)];
    if (Device* device = slot.load(std::memory_order_acquire)) [[likely]]
        return device;
    const std::lock_guard lock(opening);
    if (Device* device = slot.load(std::memory_order_acquire)) return device;
    Device* device = open_cuda_device(index);
    slot.store(device, std::memory_order_release);
    return device;
}

}  // namespace

Device& Device::get(DeviceId id) {
    if (!id.simulated) return *find_cuda_device(id.index);
#ifdef DEEP_GEMM_HAS_SIMULATOR
    return simulator::simulator_device(id.index);
#else
    fail(ErrorKind::runtime, "this build of deep_gemm has no simulator: pass CUDA tensors");
#endif
}

}  // namespace deep_gemm
