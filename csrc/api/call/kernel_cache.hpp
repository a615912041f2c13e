// Kernels by their configs, for families whose configs are too many for a table.
#pragma once

#include <map>
#include <vector>

#include "../../jit/kernel.hpp"

namespace deep_gemm {

/// Kernels that this thread has used: found without a lock, and without rendering their text again. `render_source`
/// makes a config's source.
template <typename Config, typename Render>
const Kernel& cached_kernel(Device& device, const Config& config, uint32_t smem_bytes, Render&& render_source) {
    struct Known {
        Config config;
        const Kernel* kernel;
    };
    // The simulator may become another GPU; the JIT keeps kernels of each of its targets.
    if (device.id().simulated) return *jit::get_kernel(device, render_source(), smem_bytes);
    thread_local std::map<const Device*, std::vector<Known>> known_of;
    std::vector<Known>& known = known_of[&device];
    for (const Known& entry : known)
        if (entry.config == config) return *entry.kernel;
    known.push_back({config, jit::get_kernel(device, render_source(), smem_bytes)});
    return *known.back().kernel;
}

}  // namespace deep_gemm
