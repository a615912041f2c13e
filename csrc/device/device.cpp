#include "device.hpp"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "../util/require.hpp"
#include "cuda.hpp"
#include "recorder.hpp"
#if __has_include("simulator/simulator_device.hpp")
#include "simulator/simulator_device.hpp"
#define DEEP_GEMM_HAS_SIMULATOR 1
#endif

namespace deep_gemm {
namespace {

constexpr int kMaxCudaDevices = Device::kMaxCudaDevices;

/// The devices in use. A warm look-up is one load. Constant-initialised, so that it works whatever runs before main.
constinit std::array<std::atomic<Device*>, kMaxCudaDevices> g_current{};

/// Every device that was opened, and what targets calls have chosen.
struct CudaDevices {
    std::mutex mutex;
    std::map<std::pair<int, std::string>, Device*> opened;  // by index and target
    std::array<std::optional<TargetChoice>, kMaxCudaDevices> choices;

    static CudaDevices& get() {
        static auto& kDevices = *new CudaDevices;  // never destroyed: threads may outlive main
        return kDevices;
    }

    TargetChoice choice(int index) const {
        const auto& chosen = choices[static_cast<size_t>(index)];
        return chosen ? *chosen : known_targets().from_environment();
    }

    Device* open(int index, const TargetChoice& choice) {
        const auto known = opened.find({index, choice.target});
        if (known != opened.end()) return known->second;
        const int slot = choice.target.empty() ? index : kMaxCudaDevices + num_chosen;
        require_runtime(slot < Device::kSlots, "this process used ", num_chosen,
                        " pairs of a GPU and a chosen target; there are no more");
        Device* device = open_cuda_device(index, choice, slot);
        num_chosen += !choice.target.empty();
        opened[{index, choice.target}] = device;
        return device;
    }

    /// For devices in use, so that a target which they cannot run is refused before anything has changed.
    Device* open_if_used(int index, const TargetChoice& choice) {
        const auto used = opened.lower_bound({index, ""});
        return used != opened.end() && used->first.first == index ? open(index, choice) : nullptr;
    }

private:
    int num_chosen = 0;
};

void require_index(int index) {
    require(index >= 0 && index < kMaxCudaDevices, "CUDA device ", index, " does not exist");
}

Device* find_cuda_device(int index) {
    require_index(index);
    auto& current = g_current[static_cast<size_t>(index)];
    if (Device* device = current.load(std::memory_order_acquire)) [[likely]]
        return device;
    CudaDevices& devices = CudaDevices::get();
    const std::lock_guard lock(devices.mutex);
    if (Device* device = current.load(std::memory_order_acquire)) return device;
    Device* device = devices.open(index, devices.choice(index));
    current.store(device, std::memory_order_release);
    return device;
}

}  // namespace

Device& Device::get(DeviceId id) {
    if (!id.simulated) return *find_cuda_device(id.index);
    if (id.recorded) return *Recorder::of_thread();
#ifdef DEEP_GEMM_HAS_SIMULATOR
    return simulator::simulator_device(id.index);
#else
    fail(ErrorKind::runtime, "this build of deep_gemm has no simulator: pass CUDA tensors");
#endif
}

void Device::choose_target(int index, const TargetChoice& choice) {
    require_index(index);
    CudaDevices& devices = CudaDevices::get();
    const std::lock_guard lock(devices.mutex);
    Device* device = devices.open_if_used(index, choice);
    devices.choices[static_cast<size_t>(index)] = choice;
    g_current[static_cast<size_t>(index)].store(device, std::memory_order_release);
}

void Device::choose_target(const TargetChoice& choice) {
    CudaDevices& devices = CudaDevices::get();
    const std::lock_guard lock(devices.mutex);
    std::array<Device*, kMaxCudaDevices> found{};
    for (size_t index = 0; index < found.size(); ++index)
        found[index] = devices.open_if_used(static_cast<int>(index), choice);
    devices.choices.fill(choice);
    for (size_t index = 0; index < found.size(); ++index)
        g_current[index].store(found[index], std::memory_order_release);
}

TargetChoice Device::chosen_target(int index) {
    require_index(index);
    CudaDevices& devices = CudaDevices::get();
    const std::lock_guard lock(devices.mutex);
    return devices.choice(index);
}

}  // namespace deep_gemm
