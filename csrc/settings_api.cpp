// What deep_gemm/settings.py calls: settings of one device or of all, by name, and the alignment of grouped layouts.
#include <string>

#include "api/call/call_settings.hpp"
#include "api/call/generation.hpp"
#include "api/call/target_choice.hpp"
#include "device/device.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

struct Setting {
    const char* name;
    std::atomic<int32_t> CallSettings::* value;
    int32_t smallest, largest;
};

constexpr Setting kSettings[] = {
    {"num_sms", &CallSettings::num_sms, 0, 1 << 20},
    {"tc_util", &CallSettings::tensor_core_percent, 1, 100},
    {"pdl", &CallSettings::dependent_launch, 0, 1},
    {"ignore_compile_dims", &CallSettings::ignore_compiled_dims, 0, 1},
    {"block_m_multiple_of", &CallSettings::block_m_multiple, 1, 256},
    {"block_n_multiple_of", &CallSettings::block_n_multiple, 1, 256},
    {"batch_invariant", &CallSettings::batch_invariant, 0, 1},
    {"fast_accumulation", &CallSettings::fast_accumulation, 0, 1},
    {"threads_copy", &CallSettings::threads_copy, 0, 1},
    {"fp32_scales", &CallSettings::fp32_scales, 0, 1},
};

const Setting& setting_named(const std::string& name) {
    for (const Setting& setting : kSettings)
        if (name == setting.name) return setting;
    fail(ErrorKind::value, "there is no setting ", name);
}

int32_t checked(const Setting& setting, int64_t value) {
    require(value >= setting.smallest && value <= setting.largest, setting.name, " must be between ", setting.smallest,
            " and ", setting.largest, ", got ", value);
    return static_cast<int32_t>(value);
}

CallSettings& settings_of(bool simulated, int64_t index) {
    return CallSettings::of({.simulated = simulated, .index = simulated ? 0 : static_cast<int>(index)});
}

void set_call_setting(bool simulated, int64_t index, const std::string& name, int64_t value) {
    const Setting& setting = setting_named(name);
    (settings_of(simulated, index).*setting.value).store(checked(setting, value), std::memory_order_relaxed);
    Generation::advance();
}

void set_call_setting_everywhere(const std::string& name, int64_t value) {
    const Setting& setting = setting_named(name);
    const int32_t new_value = checked(setting, value);
    for (CallSettings& device : CallSettings::of_every_device())
        (device.*setting.value).store(new_value, std::memory_order_relaxed);
    Generation::advance();
}

int64_t get_call_setting(bool simulated, int64_t index, const std::string& name) {
    const CallSettings& settings = settings_of(simulated, index);
    if (name == "fp32_scales") return settings.prefers_fp32_scales();
    return (settings.*setting_named(name).value).load(std::memory_order_relaxed);
}

void set_m_alignment(int64_t alignment) {
    require(alignment >= 8 && alignment <= 4096 && alignment % 8 == 0,
            "the alignment of contiguous layouts must be a multiple of 8 up to 4096, got ", alignment);
    CallSettings::m_alignment().store(static_cast<int32_t>(alignment), std::memory_order_relaxed);
    Generation::advance();
}

int64_t get_m_alignment() { return CallSettings::m_alignment().load(std::memory_order_relaxed); }

/// Of one GPU, or of each where the index is negative.
void choose_target(int64_t index, const std::string& target) {
    const TargetChoice choice = find_choice(target);
    if (index < 0)
        Device::choose_target(choice);
    else
        Device::choose_target(static_cast<int>(index), choice);
    Generation::advance();
}

/// Empty where a GPU runs as what it is.
std::string chosen_target(int64_t index) { return Device::chosen_target(static_cast<int>(index)).target; }

void set_compile_only(bool only) { Device::compile_only(only); }

bool get_compile_only() { return Device::compiles_only(); }

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(set_call_setting, deep_gemm::set_call_setting);
DEEP_GEMM_EXPORT(set_call_setting_everywhere, deep_gemm::set_call_setting_everywhere);
DEEP_GEMM_EXPORT(get_call_setting, deep_gemm::get_call_setting);
DEEP_GEMM_EXPORT(set_m_alignment, deep_gemm::set_m_alignment);
DEEP_GEMM_EXPORT(get_m_alignment, deep_gemm::get_m_alignment);
DEEP_GEMM_EXPORT(set_compile_only, deep_gemm::set_compile_only);
DEEP_GEMM_EXPORT(get_compile_only, deep_gemm::get_compile_only);
DEEP_GEMM_EXPORT(choose_target, deep_gemm::choose_target);
DEEP_GEMM_EXPORT(chosen_target, deep_gemm::chosen_target);
