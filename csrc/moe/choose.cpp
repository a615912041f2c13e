#include <deep_gemm/arch/sm90_memory.cuh>

#include "../config/sm90/spec.hpp"
#include "../config/tilings.hpp"
#include "../jit/render.hpp"
#include "layer.hpp"

namespace deep_gemm {
namespace {

/// Wasteful tiles too: they cost more, and others may fit no partner.
std::vector<Candidate> usable(const Problem& problem) {
    std::vector<Candidate> found = every_candidate<sm90::Spec>(problem, Tolerated::waste);
    std::erase_if(found, [](const Candidate& each) {
        return !each.rejection.empty() || each.tiling.preconvert != Preconvert::none || !may_be_in_layer(each.config);
    });
    return found;
}

std::string tile_text(const GemmConfig& c) { return concat(c.tile.rows, "x", c.tile.cols); }

}  // namespace

MoeLayerChoice choose_moe_layer(const Problem& up, const Problem& down, bool travels) {
    std::vector<Candidate> ups = usable(up), downs = usable(down);
    if (travels) std::erase_if(downs, [](const Candidate& each) { return !may_be_sent(each.config); });
    Candidate *best_up = nullptr, *best_down = nullptr;
    for (Candidate& first : ups)
        for (Candidate& second : downs) {
            if (!fit_together(first.config, second.config)) continue;
            if (best_up != nullptr && first.cost_us + second.cost_us >= best_up->cost_us + best_down->cost_us) continue;
            best_up = &first, best_down = &second;
        }
    require_runtime(best_up != nullptr, "no tiles serve both products of a layer: N=", up.n, " K=", up.k,
                    " and N=", down.n, " K=", down.k, ": get the buffer with persistent=False");
    best_up->num_ctas = best_down->num_ctas = std::max(best_up->num_ctas, best_down->num_ctas);
    return {.up = sm90::Spec::finish(up, *best_up), .down = sm90::Spec::finish(down, *best_down)};
}

jit::KernelSource render(const MoeLayerChoice& choice, bool travels) {
    const GemmConfig &up = choice.up.config, &down = choice.down.config;
    const char* const kernel = travels ? "moe_layer_ranks_sm90" : "moe_layer_sm90";
    const std::string entry =
        concat("fp8_", kernel, up.swap_ab ? "_swapped_" : "_", tile_text(up), "_", tile_text(down),
               up.cluster.size() == 1 ? std::string() : concat("_cluster", up.cluster.rows, "x", up.cluster.cols));
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/", kernel, ".cuh>\n\nusing namespace deep_gemm;\n\n",
                           choice.up.hint, "constexpr MoeLayerConfig kConfig{.up = GemmConfig", config_text(up),
                           ",\n.down = GemmConfig", config_text(down), "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(threads(kConfig.up), 1)\n", entry,
                           "(const __grid_constant__ ", travels ? "MoeLayerRanksParams" : "MoeLayerParams",
                           " params) {\n    run_", kernel, "<kConfig>(params);\n}\n")};
}

}  // namespace deep_gemm
