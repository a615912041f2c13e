// What deep_gemm/settings.py calls: the settings of one device, by name, and the alignment of grouped layouts.
#include <tvm/ffi/string.h>

#include <string_view>

#include "api/call_settings.hpp"
#include "api/generation.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::String;

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
};

std::atomic<int32_t>& setting_of(bool simulated, int64_t index, std::string_view name, int64_t* new_value) {
    CallSettings& settings =
        CallSettings::of({.simulated = simulated, .index = simulated ? 0 : static_cast<int>(index)});
    for (const Setting& setting : kSettings) {
        if (name != setting.name) continue;
        if (new_value != nullptr)
            require(*new_value >= setting.smallest && *new_value <= setting.largest, name, " must be between ",
                    setting.smallest, " and ", setting.largest, ", but is ", *new_value);
        return settings.*setting.value;
    }
    fail(ErrorKind::value, "there is no setting ", name);
}

void set_call_setting(bool simulated, int64_t index, String name, int64_t value) {
    std::atomic<int32_t>& setting = setting_of(simulated, index, std::string_view(name.data(), name.size()), &value);
    setting.store(static_cast<int32_t>(value), std::memory_order_relaxed);
    Generation::advance();
}

int64_t get_call_setting(bool simulated, int64_t index, String name) {
    return setting_of(simulated, index, std::string_view(name.data(), name.size()), nullptr)
        .load(std::memory_order_relaxed);
}

void set_m_alignment(int64_t alignment) {
    require(alignment >= 8 && alignment <= 4096 && alignment % 8 == 0,
            "the alignment of contiguous layouts must be a multiple of 8 up to 4096, but is ", alignment);
    CallSettings::m_alignment().store(static_cast<int32_t>(alignment), std::memory_order_relaxed);
    Generation::advance();
}

int64_t get_m_alignment() { return CallSettings::m_alignment().load(std::memory_order_relaxed); }

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(set_call_setting, deep_gemm::set_call_setting);
DEEP_GEMM_EXPORT(get_call_setting, deep_gemm::get_call_setting);
DEEP_GEMM_EXPORT(set_m_alignment, deep_gemm::set_m_alignment);
DEEP_GEMM_EXPORT(get_m_alignment, deep_gemm::get_m_alignment);
