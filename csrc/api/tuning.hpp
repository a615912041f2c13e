// What DG_AUTOTUNE chooses among for a problem, and what it chose when this was measured before.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../config/explain.hpp"
#include "../config/shortlist.hpp"
#include "../device/device.hpp"
#include "../jit/cache.hpp"
#include "../jit/render.hpp"
#include "../jit/winners.hpp"
#include "../util/hash.hpp"

namespace deep_gemm {

struct Tuning {
    std::vector<Choice> candidates = {};    // the model's pick first
    std::vector<std::string> kernels = {};  // their keys in the disk cache
    std::string key = {};                   // of the answer, see make_tuning
};

/// The answer's key: the problem, the device, and the kernels measured. Those have keys of their own, digests of
/// source, device headers, compiler, options and target, so that a change of any of them, or of selection, measures
/// again.
inline Tuning make_tuning(const Device& device, const Problem& problem) {
    Tuning tuning{.candidates = shortlist(problem)};
    Sha256 digest;
    digest.field("deep_gemm tuning 1").field(device.facts().name);
    digest.field({reinterpret_cast<const char*>(&problem), sizeof(problem)});
    for (const Choice& candidate : tuning.candidates) {
        tuning.kernels.push_back(jit::cache_key(render(candidate), device.facts().target, device.facts().output));
        digest.field(tuning.kernels.back());
        digest.field(concat(candidate.num_ctas, " ", candidate.strip_blocks));
    }
    tuning.key = digest.hex().substr(0, 32);
    return tuning;
}

/// Which candidate was best when it was measured: by this process, another, or on another machine with this device.
inline std::optional<size_t> find_winner(const Tuning& tuning, bool report = true) {
    const auto kernel = jit::find_winner(tuning.key);
    if (!kernel) return std::nullopt;
    for (size_t i = 0; i < tuning.kernels.size(); ++i)
        if (tuning.kernels[i] == *kernel) return i;
    if (report) jit::report_foreign_winner(tuning.key);
    return std::nullopt;
}

}  // namespace deep_gemm
