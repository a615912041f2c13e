// The architectures, and what shared code asks of them.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

enum class Arch : int32_t { sm80, sm90, sm100, sm120 };
inline constexpr int32_t kArchCount = static_cast<int32_t>(Arch::sm120) + 1;

struct ArchFacts {
    Arch arch;
    const char* name;
    bool copy_engine;   // tensor maps tell it what lies where; else threads copy, by PlainMaps
    bool clusters;      // of more than one CTA, that share copies
    bool casts_scales;  // FP32 ones are taken for powers of two, unless a call says that they are not
};

/// The table of architectures.
constexpr ArchFacts facts(Arch arch) {
    constexpr ArchFacts kArchs[kArchCount] = {
        {Arch::sm80, "sm80", false, false, false},
        {Arch::sm90, "sm90", true, true, false},
        {Arch::sm100, "sm100", true, true, true},
        {Arch::sm120, "sm120", false, false, false},
    };
    return kArchs[static_cast<int32_t>(arch)];
}

}  // namespace deep_gemm
