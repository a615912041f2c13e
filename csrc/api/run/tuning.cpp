#include "tuning.hpp"

#include <string_view>

#include "../../config/shortlist.hpp"
#include "../../jit/cache_entry.hpp"
#include "../../jit/render.hpp"
#include "../../jit/winners.hpp"
#include "../../util/hash.hpp"

namespace deep_gemm {

Tuning make_tuning(const Device& device, const Problem& problem) {
    Tuning tuning{.candidates = shortlist(problem)};
    Sha256 digest;
    digest.field("deep_gemm tuning 1").field(device.facts().name);
    digest.field({reinterpret_cast<const char*>(&problem), sizeof(problem)});
    for (const Choice& candidate : tuning.candidates) {
        tuning.kernels.push_back(jit::cache_key(render(candidate), device.facts().target, device.facts().output));
        digest.field(tuning.kernels.back());
        digest.field(concat(candidate.num_ctas, " ", candidate.raster_group_blocks));
    }
    tuning.key = digest.hex().substr(0, 32);
    return tuning;
}

std::optional<size_t> find_winner(const Tuning& tuning, bool report) {
    const auto kernel = jit::find_winner(tuning.key);
    if (!kernel) return std::nullopt;
    for (size_t i = 0; i < tuning.kernels.size(); ++i)
        if (tuning.kernels[i] == *kernel) return i;
    if (report) jit::report_foreign_winner(tuning.key);
    return std::nullopt;
}

}  // namespace deep_gemm
