#include "target_support.hpp"

#include "sm90/ffma_yields.hpp"
#include "sm90/hidden_waits.hpp"

namespace deep_gemm::jit {

const TargetSupport* support_of(const std::string& target) {
    static constexpr TargetSupport kSupports[] = {{"sm_90", sm90::hidden_waits, sm90::finish_ffma_yields}};
    for (const TargetSupport& support : kSupports)
        if (target.starts_with(support.beginning)) return &support;
    return nullptr;
}

}  // namespace deep_gemm::jit
