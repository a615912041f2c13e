// What GEMMs are compiled for.
#pragma once

#include <deep_gemm/config.cuh>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "../device/device.hpp"
#include "../util/require.hpp"

namespace deep_gemm {

/// A target of the compiler. An image for sm_100f runs on compute capability 10.0 and 10.3, and is what devices of
/// these two are given; one for sm_100a or sm_103a runs on one of them.
struct TargetRow {
    std::string_view target;
    Arch arch;
};
inline constexpr TargetRow kTargets[] = {
    {"sm_90a", Arch::sm90}, {"sm_100a", Arch::sm100}, {"sm_100f", Arch::sm100}, {"sm_103a", Arch::sm100}};

inline std::optional<Arch> find_arch(std::string_view target) {
    const auto* const found = std::ranges::find(kTargets, target, &TargetRow::target);
    return found == std::end(kTargets) ? std::nullopt : std::optional(found->arch);
}

/// "sm_90a, sm_100a, sm_100f and sm_103a", for errors.
inline std::string targets_text() {
    std::string text;
    for (size_t i = 0; i < std::size(kTargets); ++i)
        text += concat(i == 0 ? "" : i + 1 < std::size(kTargets) ? ", " : " and ", kTargets[i].target);
    return text;
}

inline Arch arch_of(std::string_view target) {
    const std::optional<Arch> found = find_arch(target);
    require(found.has_value(), "there are kernels for ", targets_text(), ", not for ", target);
    return *found;
}

inline Arch arch_of(const DeviceFacts& facts) {
    const std::optional<Arch> found = find_arch(facts.target);
    require_runtime(found.has_value(), "GEMMs run on ", targets_text(), ", but ", facts.name, " is an ", facts.target);
    return *found;
}

}  // namespace deep_gemm
