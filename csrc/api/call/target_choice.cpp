#include "target_choice.hpp"

#include <cctype>

#include "../../config/archs.hpp"
#include "../../jit/settings.hpp"
#include "../../util/require.hpp"

namespace deep_gemm {

TargetChoice find_choice(const std::string& target) {
    if (target.empty()) return {};
    const TargetRow* const row = find_target(target);
    require(row != nullptr, "there are kernels for ", Later{targets_text}, ", not for ", target);
    return {.target = target, .number = row->facts.number, .max_smem_bytes = row->facts.smem_bytes};
}

namespace {

GpuTarget target_of_gpu(const std::string& name, int major, int minor) {
    const int number = major * 10 + minor;
    if (number == 100 || number == 103) return {.target = "sm_100f"};  // one family, and one image
    const TargetRow* newest = nullptr;                                 // whose code any newer GPU runs
    for (const TargetRow& row : kTargets) {
        if (row.facts.number == number) return {.target = std::string(row.target)};
        const bool portable = !std::isalpha(static_cast<unsigned char>(row.target.back()));
        if (portable && row.facts.number < number && (newest == nullptr || newest->facts.number < row.facts.number))
            newest = &row;
    }
    require_runtime(newest != nullptr, "deep_gemm needs a GPU of compute capability 8.0 or newer, but ", name, " has ",
                    major, ".", minor, "; there are kernels for ", Later{targets_text});
    return {.target = std::string(newest->target), .translated = true};
}

TargetChoice target_from_environment() {
    try {
        return find_choice(jit::settings().target);
    } catch (const Error& error) {
        fail(error.kind(), "DG_TARGET: ", error.what());
    }
}

}  // namespace

void announce_targets() { set_known_targets({.of_gpu = target_of_gpu, .from_environment = target_from_environment}); }

}  // namespace deep_gemm
