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

void check_tensor_map(const TensorMapSpec& spec) {
    constexpr uint64_t kMaxSize = uint64_t{1} << 32;
    constexpr uint64_t kMaxStrideBytes = uint64_t{1} << 40;
    constexpr uint32_t kMaxBox = 256;
    constexpr uint64_t kAlignment = 16;
    const uint32_t bytes = element_bytes(spec.type);
    require(spec.rank >= 1 && spec.rank <= 5, "a tensor map has 1 to 5 dimensions, not ", spec.rank);
    require(spec.address != nullptr, "a tensor map needs an address, but the tensor has none (is it empty?)");
    require(reinterpret_cast<uintptr_t>(spec.address) % kAlignment == 0,
            "a tensor read by TMA must start at a multiple of 16 bytes, but this one starts at ", spec.address);
    for (int i = 0; i < spec.rank; ++i) {
        require(spec.sizes[i] >= 1 && spec.sizes[i] <= kMaxSize, "dimension ", i,
                " of a tensor map must have 1 to 2^32 elements, not ", spec.sizes[i]);
        require(spec.box[i] >= 1 && spec.box[i] <= kMaxBox, "dimension ", i,
                " of a tensor map's box must have 1 to 256 elements, not ", spec.box[i]);
    }
    for (int i = 0; i + 1 < spec.rank; ++i)
        require(spec.strides_bytes[i] % kAlignment == 0 && spec.strides_bytes[i] < kMaxStrideBytes,
                "neighbours in dimension ", i + 1,
                " of a tensor read by TMA must lie a multiple of 16 bytes (below 2^40) "
                "apart, not ",
                spec.strides_bytes[i], " bytes");
    const uint32_t row_bytes = spec.box[0] * bytes;
    require(row_bytes % kAlignment == 0, "a row of a tensor map's box must be a multiple of 16 bytes, not ", row_bytes,
            " (", spec.box[0], " of ", name(spec.type), ")");
    constexpr uint32_t kSpanBytes[] = {UINT32_MAX, 32, 64, 128};
    require(row_bytes <= kSpanBytes[static_cast<int>(spec.swizzle)], "a row of a tensor map's box has ", row_bytes,
            " bytes, more than its swizzle of ", name(spec.swizzle), " spans");
}

}  // namespace deep_gemm
