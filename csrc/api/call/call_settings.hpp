// What a caller sets once, for one device or for all, and every later call obeys. Read on the warm path, so plain
// atomics; no lock anywhere. Each device has every value of its own: what holds for all devices is stored in all of
// them, so that reading never looks further.
#pragma once

#include <array>
#include <atomic>

#include "../../config/archs.hpp"
#include "../../config/problem.hpp"
#include "../../device/device.hpp"
#include "../../jit/settings.hpp"
#include "../../util/require.hpp"

namespace deep_gemm {

struct CallSettings {
    std::atomic<int32_t> num_sms = 0;  // 0: all of the device
    std::atomic<int32_t> tensor_core_percent = 100;
    std::atomic<int32_t> dependent_launch = 1;
    std::atomic<int32_t> ignore_compiled_dims = 0;
    std::atomic<int32_t> block_m_multiple = 1, block_n_multiple = 1;
    std::atomic<int32_t> batch_invariant = 0;
    std::atomic<int32_t> fast_accumulation = 0;
    std::atomic<int32_t> threads_copy = 0;
    std::atomic<int32_t> fp32_scales = -1;  // -1: as DG_FP32_SCALES says

    static CallSettings& of(DeviceId id) {
        require_runtime(id.simulated || (id.index >= 0 && id.index < kMaxDevices), "device index ", id.index,
                        " is not below ", kMaxDevices);
        return of_every_device()[id.simulated ? kMaxDevices : id.index];
    }

    static constexpr int kMaxDevices = 64;

    /// Of each GPU, and last of the simulator. No GPU needs to be open, or there at all.
    static std::array<CallSettings, kMaxDevices + 1>& of_every_device() {
        static constinit std::array<CallSettings, kMaxDevices + 1> settings{};
        return settings;
    }

    /// How tensors of grouped calls are laid out: one convention for the whole process, not a property of a device.
    static std::atomic<int32_t>& m_alignment() {
        static std::atomic<int32_t> alignment = 128;
        return alignment;
    }

    int32_t allowed_sms(const DeviceFacts& facts) const {
        const int32_t sms = num_sms.load(std::memory_order_relaxed);
        return sms == 0 ? facts.num_sms : std::min(sms, facts.num_sms);
    }

    /// Whether FP32 scales are multiplied as they are where there are kernels of exponents too.
    bool prefers_fp32_scales() const {
        const int32_t chosen = fp32_scales.load(std::memory_order_relaxed);
        return chosen < 0 ? jit::settings().fp32_scales : chosen != 0;
    }

    /// Values set one after the other may be seen half changed by a call that runs at the same time; each of them is
    /// legal.
    void apply(Problem& p, const DeviceFacts& facts) const {
        constexpr auto kRelaxed = std::memory_order_relaxed;
        set_device(p, facts);
        p.num_sms = allowed_sms(facts);
        p.tensor_core_percent = tensor_core_percent.load(kRelaxed);
        p.block_m_multiple = block_m_multiple.load(kRelaxed), p.block_n_multiple = block_n_multiple.load(kRelaxed);
        p.batch_invariant = batch_invariant.load(kRelaxed);
        p.fast_accumulation = fast_accumulation.load(kRelaxed);
        p.threads_copy = threads_copy.load(kRelaxed);
        if (ignore_compiled_dims.load(kRelaxed)) p.compiled = {};
    }
};

/// Every kernel of ours waits for the preceding one before it touches anything (`ptx::wait_for_previous_grid`), so each
/// may start while that one still runs. Before sm_90 none can wait.
inline LaunchShape may_start_early(LaunchShape shape, const Device& device) {
    shape.dependent_launch = can_wait_for_grids(device.facts()) &&
                             CallSettings::of(device.id()).dependent_launch.load(std::memory_order_relaxed) != 0;
    return shape;
}

}  // namespace deep_gemm
