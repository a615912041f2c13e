// What a device can do: encode tensor maps, load kernels, launch them.
//
// Three kinds exist: a GPU behind the CUDA driver (cuda.cpp), the PTX simulator (simulator/) that CPU tensors run on,
// and one that only takes note of kernels (recorder.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "extent.hpp"
#include "target_choice.hpp"
#include "tensor_map.hpp"

namespace deep_gemm {

struct DeviceId {
    bool simulated = false;  // CPU tensors -> {true, 0}; CUDA tensors -> {false, index}
    int index = 0;
    bool recorded = false;  // CPU tensors of a thread whose calls are noted, not run (recorder.hpp)
    bool operator==(const DeviceId&) const = default;

    /// Whether what tensors hold can be read here and now, without waiting for a GPU.
    bool holds_values() const { return simulated && !recorded; }
};

/// What a device loads, and so what the compiler must make: machine code; PTX for the simulator, whose reports name
/// lines of the source; PTX that the driver translates for a GPU newer than the target.
enum class Output : uint8_t { cubin, ptx, driver_ptx };

struct DeviceFacts {
    std::string name;
    int arch_major = 0;
    int arch_minor = 0;
    std::string target;             // "sm_90a": what to compile for
    Output output = Output::cubin;  // what load() takes
    int num_sms = 0;
    int max_smem_bytes = 0;  // dynamic shared memory that one block may ask for
    int64_t l2_bytes = 0;
    int clock_mhz = 0, memory_gb_per_s = 0;  // highest, as a driver says; 0: nobody says
};

/// A one-dimensional launch. `grid` counts blocks and is a multiple of `cluster`.
struct LaunchShape {
    uint32_t grid = 1;
    uint32_t block = 1;
    uint32_t cluster = 1;
    uint32_t smem_bytes = 0;
    bool dependent_launch = false;  // may start before the previous kernel of the stream has ended (griddepcontrol)
    bool cooperative = false;       // blocks wait for each other: all of them run at once, or the launch fails
};

/// How `Device::time_launches` measures.
struct TimingOptions {
    int rounds = 1;
    void* flush = nullptr;  // memory of the device, larger than its L2: written before each launch
    size_t flush_bytes = 0;
};

/// A kernel loaded on one device. Immutable, and never destroyed: it lives as long as the process.
class Kernel {
public:
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

    /// What a thread keeps in memory of its own: registers that were spilled, arrays that found none. 0 also where
    /// nobody can tell, as on the simulator.
    int local_bytes() const { return local_bytes_; }

protected:
    explicit Kernel(int local_bytes = 0) : local_bytes_(local_bytes) {}
    ~Kernel() = default;  // never through a base pointer

private:
    int local_bytes_;
};

/// One object per device and target for the whole process. All calls are thread-safe.
class Device {
public:
    static constexpr int kMaxCudaDevices = 64;

    /// The device of this id, of the target in force. The first call for a CUDA device starts the driver; without one
    /// it throws and says so. Another thread may choose another target at any time, so a call asks once.
    static Device& get(DeviceId id);

    /// Compile for this target from now on: for one GPU, or for each. GPUs in use must be able to run its code; others
    /// refuse it when they are used.
    static void choose_target(int index, const TargetChoice& choice);
    static void choose_target(const TargetChoice& choice);

    /// What was chosen for a GPU, by a call or by DG_TARGET. Opens no device.
    static TargetChoice chosen_target(int index);

    const DeviceFacts& facts() const { return facts_; }
    DeviceId id() const { return id_; }

    /// The place of a CUDA device of one target in tables of what is kept for each.
    int slot() const { return slot_; }
    static constexpr int kSlots = 2 * kMaxCudaDevices;

    /// Refuses what the hardware cannot take, with a message that names the broken rule.
    virtual EncodedTensorMap encode(const TensorMapSpec& spec) const = 0;

    /// Load an image (cubin or PTX text, as `facts` say) and prepare its entry for `smem_bytes` of dynamic shared
    /// memory. The kernel is never unloaded, so callers keep it: `jit::get_kernel` does.
    virtual const Kernel* load(const std::string& image, const char* entry, uint32_t smem_bytes) = 0;

    /// Takes note of a kernel in the place of compiling and loading it; null where the device loads kernels.
    virtual const Kernel* note(const std::string& /*name*/, const std::string& /*text*/,
                               const std::string& /*target*/) {
        return nullptr;
    }

    /// Put one launch on a stream. `params` is the kernel's only argument and is copied before the call returns.
    void launch(const Kernel& kernel, const LaunchShape& shape, const void* params, size_t params_bytes, void* stream,
                std::span<const Extent> extents) {
        if (!compiles_only()) [[likely]]
            put(kernel, shape, params, params_bytes, stream, extents);
    }

    /// Whether launches are left out, in the whole process: calls are checked and their kernels compiled and loaded,
    /// nothing runs.
    static bool compiles_only() { return compiles_only_.load(std::memory_order_relaxed); }
    static void compile_only(bool only) { compiles_only_.store(only, std::memory_order_relaxed); }

    /// Copies memory of the device that what is on the stream may still write, and waits for it. The stream must not be
    /// captured.
    virtual void read(void* target, const void* source, size_t bytes, void* stream) = 0;

    /// How many clusters of this shape can be resident at once on the whole device.
    virtual int max_clusters(const Kernel& kernel, const LaunchShape& shape) = 0;

    /// Whether what runs on this device can be timed at all. The simulator's time says nothing about a GPU.
    virtual bool has_clock() const { return false; }

    /// Whether a stream is being captured into a graph, so that nothing may be timed on it now.
    virtual bool is_capturing(void* /*stream*/) { return false; }

    /// Microseconds of each launch (a call that puts something on this stream) from a cold L2: the median of the
    /// rounds, in each of which all take a turn. Waits for the stream, which must not be captured. Empty without a
    /// clock.
    virtual std::vector<double> time_launches(void* /*stream*/, std::span<const std::function<void()>> /*launches*/,
                                              const TimingOptions& /*options*/) {
        return {};
    }

protected:
    Device(DeviceId id, DeviceFacts facts, int slot = 0) : id_(id), facts_(std::move(facts)), slot_(slot) {}
    ~Device() = default;  // devices live as long as the process

private:
    virtual void put(const Kernel& kernel, const LaunchShape& shape, const void* params, size_t params_bytes,
                     void* stream, std::span<const Extent> extents) = 0;

    static inline std::atomic<bool> compiles_only_ = false;
    DeviceId id_;
    DeviceFacts facts_;
    int slot_;
};

/// Refuse a tensor map that breaks a rule of cuTensorMapEncodeTiled. Both devices call it before they encode.
void check_tensor_map(const TensorMapSpec& spec);

}  // namespace deep_gemm
