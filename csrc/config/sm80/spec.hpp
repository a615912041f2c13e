// SM80 as selection sees it (ArchSpec, csrc/config/tilings.hpp).
#pragma once

#include "../walk.hpp"
#include "configure.hpp"
#include "cost.hpp"
#include "finish.hpp"
#include "memory.hpp"
#include "rejections.hpp"
#include "spills.hpp"
#include "tiles.hpp"

namespace deep_gemm::sm80 {

struct Spec {
    static std::vector<Tiling> tilings(const Problem& p) { return sm80::tilings(p); }
    static bool has_tiling(const Problem& p, const Tiling& tiling) { return sm80::has_tiling(p, tiling); }
    static GemmConfig configure(const Problem& p, const Tiling& tiling) {
        return sm80::configure(p, tiling, *find_grid(tiling));
    }
    static std::string_view rejection(const Problem& p, const GemmConfig& c, int64_t) {
        return sm80::rejection(seen_by(p, c), c);
    }
    static std::string_view spills(const Problem& p, const GemmConfig& c) { return spill_rejection(kSpills, p, c); }
    static void divide_smem(const Problem& p, GemmConfig& c, double tiles_per_sm) {
        sm80::divide_smem(c, p.smem_bytes, tiles_per_sm);
    }
    static int32_t resident_ctas(const Problem& p, const GemmConfig& c) { return p.num_sms * c.sm80.ctas_per_sm; }
    static Footprint footprint(const GemmConfig& c) {
        return {.threads = threads(c),
                .smem_bytes = c.stages > 0 ? plan_smem(c).bytes : 0,
                .ctas_per_sm = c.sm80.ctas_per_sm};
    }
    static std::string_view smem_rejection(const GemmConfig& c) { return sm80::smem_rejection(c); }
    static std::string_view waste(const Problem& p, const GemmConfig& c) { return sm80::waste(p, c); }
    static void choose_walk(const Problem& p, Candidate& candidate) {
        candidate.raster_group_blocks = square_raster_group(p, candidate.config, candidate.num_ctas);
    }
    static CostConstants cost_constants(const Problem& p) { return sm80::cost_constants(p.rates, p.target); }
    static double cost_us(const Problem& p, const Candidate& candidate, const CostConstants& constants) {
        return sm80::cost_us(p, candidate, constants);
    }
    static double least_us(const Problem&, const Candidate&, const CostConstants&) { return 0; }
    static Choice finish(const Problem& p, const Candidate& candidate) { return sm80::finish(p, candidate); }
};

}  // namespace deep_gemm::sm80
