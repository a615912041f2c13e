// The architectures, and what shared code asks of them.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

enum class Arch : int32_t { sm80, sm90, sm100 };
inline constexpr int32_t kArchCount = static_cast<int32_t>(Arch::sm100) + 1;

struct ArchFacts {
    Arch arch;
    const char* name;
    bool copy_engine;  // tensor maps tell it what lies where; else threads copy, by PlainMaps
};

/// The table of architectures.
constexpr ArchFacts facts(Arch arch) {
    constexpr ArchFacts kArchs[kArchCount] = {
        {Arch::sm80, "sm80", false},
        {Arch::sm90, "sm90", true},
        {Arch::sm100, "sm100", true},
    };
    return kArchs[static_cast<int32_t>(arch)];
}

}  // namespace deep_gemm
