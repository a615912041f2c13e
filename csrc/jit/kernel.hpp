// From generated source to a loaded kernel: memory cache, disk cache, compiler, device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../device/device.hpp"

namespace deep_gemm::jit {

struct KernelSource {
    std::string name;  // extern "C" symbol of the kernel, which profilers show; logs and file names have it too
    std::string text;  // the whole generated source
};

using KernelSources = std::vector<KernelSource>;

/// The loaded kernel of this source, compiled if no cache has it. Blocks until it is there; thread-safe. It hashes the
/// text, so callers on a warm path keep the pointer. The target is the device's own, or another whose code it runs.
const Kernel* get_kernel(Device& device, const KernelSource& source, uint32_t smem_bytes);
const Kernel* get_kernel(Device& device, const KernelSource& source, uint32_t smem_bytes, const std::string& target);

/// Compile for a target ("sm_90a") through the disk cache. Needs no device: for precompiling and for tests.
std::string compile_to_image(const KernelSource& source, const std::string& target, Output output);

/// What this process did so far.
struct Statistics {
    int64_t compiled = 0;          // by a compiler
    int64_t stored = 0;            // of those, kept in the disk cache
    int64_t found_on_disk = 0;     // in the disk cache
    int64_t loaded = 0;            // onto a device
    double compile_seconds = 0.0;  // spent in the compiler, all threads together
};
Statistics statistics();

}  // namespace deep_gemm::jit
