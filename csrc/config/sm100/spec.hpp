// SM100 as selection sees it (ArchSpec, csrc/config/tilings.hpp).
#pragma once

#include "../walk.hpp"
#include "configure.hpp"
#include "cost.hpp"
#include "finish.hpp"
#include "memory.hpp"
#include "rejections.hpp"
#include "spills.hpp"
#include "tiles.hpp"

namespace deep_gemm::sm100 {

struct Spec {
    static std::vector<Tiling> tilings(const Problem& p) { return sm100::tilings(p); }
    static bool has_tiling(const Problem& p, const Tiling& tiling) { return sm100::has_tiling(p, tiling); }
    static GemmConfig configure(const Problem& p, const Tiling& tiling) { return sm100::configure(p, tiling); }
    static std::string_view rejection(const Problem& p, const GemmConfig& c, int64_t tiles) {
        return sm100::rejection(p, c, tiles);
    }
    static std::string_view spills(const Problem& p, const GemmConfig& c) { return spill_rejection(kSpills, p, c); }
    static int32_t resident_ctas(const Problem& p, const GemmConfig& c) { return sm100::resident_ctas(p, c); }
    static void divide_smem(const Problem&, GemmConfig& c, double tiles_per_cta) {
        sm100::divide_smem(c, tiles_per_cta);
    }
    static Footprint footprint(const GemmConfig& c) {
        return {.threads = threads(c), .smem_bytes = c.stages > 0 ? plan_smem(c).bytes : 0};
    }
    static std::string_view smem_rejection(const GemmConfig& c) { return sm100::smem_rejection(c); }
    static std::string_view waste(const Problem& p, const GemmConfig& c) { return sm100::waste(p, c); }
    static void choose_walk(const Problem& p, Candidate& candidate) {
        candidate.raster_group_blocks = square_raster_group(p, candidate.config, candidate.num_ctas);
        candidate.config.stream_b = streams_b(p, candidate.config, candidate.raster_group_blocks, kL2Bytes);
    }
    static CostConstants cost_constants(const Problem&) { return {}; }
    static double cost_us(const Problem& p, const Candidate& candidate, const CostConstants& constants) {
        Problem average = p;
        average.k = expected_k(p);
        return CostModel{constants}.estimate_us(average, candidate.config, candidate.num_ctas);
    }
    static double least_us(const Problem&, const Candidate&, const CostConstants&) { return 0; }
    static Choice finish(const Problem& p, const Candidate& candidate) { return sm100::finish(p, candidate); }
};

}  // namespace deep_gemm::sm100
