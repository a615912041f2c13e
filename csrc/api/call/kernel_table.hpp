// Kernels beside the products, which rearrange operands and scales: a source text for each variant.
#pragma once

#include <array>
#include <atomic>
#include <span>

#include "../../device/device.hpp"
#include "../../jit/kernel.hpp"
#include "../../util/require.hpp"
#include "call_settings.hpp"

namespace deep_gemm {

struct Blocks {
    int64_t count;
    uint32_t threads;
    const char* work;  // for the error: "scales", "an operand to copy"
};

/// Kernels that were loaded before, found without a lock and without rendering their text again.
template <size_t kVariants>
class KernelTable {
public:
    /// `render_source` makes the variant's source. Nothing is launched where the work takes no block.
    template <typename Params, typename Render>
    void launch(Device& device, size_t variant, Render&& render_source, const Blocks& blocks, const Params& params,
                std::span<const Extent> extents, void* stream) {
        require(blocks.count < (int64_t{1} << 31), blocks.work, " needs ", blocks.count,
                " blocks, more than a grid holds");
        if (blocks.count == 0) return;
        const Kernel& kernel = get(device, variant, render_source);
        const LaunchShape shape{.grid = static_cast<uint32_t>(blocks.count), .block = blocks.threads};
        device.launch(kernel, may_start_early(shape, device), &params, sizeof(params), stream, extents);
    }

private:
    template <typename Render>
    const Kernel& get(Device& device, size_t variant, Render&& render_source) {
        // The simulator has no slots; the JIT keeps kernels of each of its targets.
        if (device.id().simulated) return *jit::get_kernel(device, render_source(), 0);
        std::atomic<const Kernel*>& entry = entries_[device.slot()][variant];
        const Kernel* kernel = entry.load(std::memory_order_acquire);
        if (kernel == nullptr) {
            kernel = jit::get_kernel(device, render_source(), 0);
            entry.store(kernel, std::memory_order_release);
        }
        return *kernel;
    }

    std::array<std::array<std::atomic<const Kernel*>, kVariants>, Device::kSlots> entries_ = {};
};

}  // namespace deep_gemm
