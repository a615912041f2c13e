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
#include "cards.hpp"
#include "problem.hpp"

namespace deep_gemm {

/// What GPUs of a target have.
struct TargetFacts {
    int32_t number;      // 80 for sm_80
    int32_t smem_bytes;  // that a block may ask for
    int32_t l2_mib;      // of the largest one
    bool multiplies_integers = true;
};

/// A target of the compiler. An image for sm_100f runs on compute capability 10.0 and 10.3, and is what devices of
/// these two are given; one for sm_100a or sm_103a runs on one of them. sm_120f is the family of 12.0 and 12.1, for who
/// wants one image for both: by themselves they ask for their own. A GPU is given the first row of its number;
/// newer ones that no row names run the PTX of a row without a letter.
struct TargetRow {
    std::string_view target;
    Arch arch;
    TargetFacts facts;
};
inline constexpr int32_t kKiB = 1024;
inline constexpr TargetRow kTargets[] = {{"sm_80", Arch::sm80, {80, 163 * kKiB, 40}},
                                         {"sm_86", Arch::sm80, {86, 99 * kKiB, 6}},
                                         {"sm_87", Arch::sm80, {87, 163 * kKiB, 4}},
                                         {"sm_88", Arch::sm80, {88, 99 * kKiB, 4}},
                                         {"sm_89", Arch::sm80, {89, 99 * kKiB, 96}},
                                         {"sm_110", Arch::sm80, {110, 227 * kKiB, 32}},
                                         {"sm_120a", Arch::sm120, {120, 99 * kKiB, 128}},
                                         {"sm_121a", Arch::sm120, {121, 99 * kKiB, 24}},
                                         {"sm_120f", Arch::sm120, {120, 99 * kKiB, 128}},
                                         {"sm_120", Arch::sm80, {120, 99 * kKiB, 128}},
                                         {"sm_121", Arch::sm80, {121, 99 * kKiB, 24}},
                                         {"sm_90a", Arch::sm90, {90, 227 * kKiB, 50}},
                                         {"sm_100a", Arch::sm100, {100, 227 * kKiB, 126}},
                                         {"sm_100f", Arch::sm100, {100, 227 * kKiB, 126, false}},
                                         {"sm_103a", Arch::sm100, {103, 227 * kKiB, 126, false}}};

inline const TargetRow* find_target(std::string_view target) {
    const auto* const found = std::ranges::find(kTargets, target, &TargetRow::target);
    return found == std::end(kTargets) ? nullptr : found;
}

inline std::optional<Arch> find_arch(std::string_view target) {
    const TargetRow* const found = find_target(target);
    return found == nullptr ? std::nullopt : std::optional(found->arch);
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
    require(found.has_value(), "there are kernels for ", Later{targets_text}, ", not for ", target);
    return *found;
}

inline Arch arch_of(const DeviceFacts& facts) {
    const std::optional<Arch> found = find_arch(facts.target);
    require_runtime(found.has_value(), "GEMMs run on ", Later{targets_text}, ", but ", facts.name, " is an ",
                    facts.target);
    return *found;
}

/// What kernels that add up in `sum` are compiled for on a device: its own target or, where that is a family's which
/// does not multiply integers, the one of this GPU alone. None where the GPU does not either.
inline const TargetRow* find_target(const DeviceFacts& facts, Element sum) {
    const TargetRow* const own = find_target(facts.target);
    const auto serves = [&](const TargetRow& row) { return sum != Element::s32 || row.facts.multiplies_integers; };
    if (own == nullptr || serves(*own)) return own;
    const int32_t number = facts.arch_major * 10 + facts.arch_minor;
    const auto* const found =
        std::ranges::find_if(kTargets, [&](const TargetRow& row) { return row.facts.number == number && serves(row); });
    return found == std::end(kTargets) ? nullptr : found;
}

inline constexpr const char* kNoIntegers =
    "integers are multiplied by B200's tensor cores, in code for sm_100a, not by B300's, but this is ";

/// Whether a kernel for this device can wait for the one before it (griddepcontrol), and so start while that one runs.
inline bool can_wait_for_grids(const DeviceFacts& facts) {
    const TargetRow* const found = find_target(facts.target);
    return found != nullptr && found->facts.number >= 90;
}

/// What a problem knows of its GPU, as those of an architecture may differ.
inline void set_target(Problem& p, const TargetFacts& facts) {
    p.target = facts.number, p.smem_bytes = facts.smem_bytes, p.l2_mib = facts.l2_mib;
}

/// What a problem knows of the device that runs it.
inline void set_device(Problem& p, const DeviceFacts& facts) {
    p.arch = arch_of(facts), p.device_sms = facts.num_sms;
    set_target(p, {.number = find_target(facts.target)->facts.number,
                   .smem_bytes = facts.max_smem_bytes,
                   .l2_mib = static_cast<int32_t>(facts.l2_bytes >> 20)});
    p.rates = rates_of(facts, p.target);
}

}  // namespace deep_gemm
