#include "target_choice.hpp"

#include "../config/archs.hpp"
#include "../jit/settings.hpp"
#include "../util/require.hpp"

namespace deep_gemm {

TargetChoice find_choice(const std::string& target) {
    if (target.empty()) return {};
    const TargetRow* const row = find_target(target);
    require(row != nullptr, "there are kernels for ", targets_text(), ", not for ", target);
    return {.target = target, .number = row->facts.number, .max_smem_bytes = row->facts.smem_bytes};
}

TargetChoice target_from_environment() {
    try {
        return find_choice(jit::settings().target);
    } catch (const Error& error) {
        fail(error.kind(), "DG_TARGET: ", error.what());
    }
}

}  // namespace deep_gemm
