// The architectures that GEMMs are compiled for.
#pragma once

#include <deep_gemm/config.cuh>

#include <algorithm>
#include <iterator>

#include "../device/device.hpp"
#include "../util/require.hpp"

namespace deep_gemm {

struct ArchRow {
    Arch arch;
    int32_t major;  // of the compute capability
};
inline constexpr ArchRow kArchs[] = {{Arch::sm90, 9}, {Arch::sm100, 10}};

inline Arch arch_of(const DeviceFacts& facts) {
    const auto* const found = std::ranges::find(kArchs, facts.arch_major, &ArchRow::major);
    require_runtime(found != std::end(kArchs), "GEMMs run on Hopper (sm_90a) and Blackwell (sm_100a, sm_103a), but ",
                    facts.name, " is an ", facts.target);
    return found->arch;
}

}  // namespace deep_gemm
