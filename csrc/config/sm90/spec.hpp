// Hopper as selection sees it (ArchSpec, csrc/config/tilings.hpp).
#pragma once

#include "clusters.hpp"
#include "configure.hpp"
#include "cost.hpp"
#include "finish.hpp"
#include "l2.hpp"
#include "rejections.hpp"
#include "spills.hpp"
#include "stages.hpp"
#include "tiles.hpp"
#include "unpacked.hpp"

namespace deep_gemm::sm90 {

struct Spec {
    static std::vector<Tiling> tilings(const Problem& p) {
        std::vector<Tiling> found = sm90::tilings(p);
        if (!may_multiply_unpacked(p) || p.m < kMinUnpackedM) return found;
        for (Tiling& tiling : sm90::tilings(unpacked(p))) {
            tiling.preconvert = Preconvert::b;
            found.push_back(tiling);
        }
        return found;
    }
    static bool has_tiling(const Problem& p, const Tiling& tiling) {
        return tiling.preconvert == Preconvert::b ? may_multiply_unpacked(p) && sm90::has_tiling(unpacked(p), tiling)
                                                  : sm90::has_tiling(p, tiling);
    }
    static GemmConfig configure(const Problem& p, const Tiling& tiling) {
        return sm90::configure(tiling.preconvert == Preconvert::b ? unpacked(p) : p, tiling);
    }
    static std::string_view rejection(const Problem& p, const GemmConfig& c, int64_t tiles) {
        return sm90::rejection(seen_by(p, c), c, tiles);
    }
    static std::string_view spills(const Problem& p, const GemmConfig& c) { return spill_rejection(kSpills, p, c); }
    static int32_t resident_ctas(const Problem& p, const GemmConfig& c) {
        return sm90::resident_ctas(p.num_sms, c.cluster.size());
    }
    static void divide_smem(const Problem&, GemmConfig& c, double tiles_per_cta) {
        sm90::divide_smem(c, tiles_per_cta);
    }
    static Footprint footprint(const GemmConfig& c) {
        return {.threads = threads(c), .smem_bytes = c.stages > 0 ? plan_smem(c).bytes : 0};
    }
    static std::string_view smem_rejection(const GemmConfig& c) { return sm90::smem_rejection(c); }
    static std::string_view waste(const Problem& p, const GemmConfig& c) { return sm90::waste(p, c); }
    static void choose_walk(const Problem& p, Candidate& candidate) {
        candidate.raster_group_blocks = choose_raster_group(p, candidate.config, candidate.num_ctas);
        candidate.config.stream_b = streams_b(p, candidate.config, candidate.raster_group_blocks, kL2Bytes);
    }
    static CostConstants cost_constants(const Problem& p) {
        return sm90::cost_constants(CostConstants::of(p.a.element, p.b.packed() || scales_blocks(p)), p.rates);
    }
    static double cost_us(const Problem& p, const Candidate& candidate, const CostConstants& constants) {
        return estimate_us(p, candidate, {constants, /*least=*/false});
    }
    static double least_us(const Problem& p, const Candidate& candidate, const CostConstants& constants) {
        constexpr double kRoundings = 1 - 1e-9;
        return kRoundings * estimate_us(p, candidate, {constants, /*least=*/true});
    }
    static Choice finish(const Problem& p, const Candidate& candidate) {
        return sm90::finish(seen_by(p, candidate.config), candidate);
    }

private:
    static double estimate_us(const Problem& p, const Candidate& candidate, const CostModel& model) {
        Problem average = seen_by(p, candidate.config);
        average.k = expected_k(p);
        const double us = model.estimate_us(average, candidate.config, candidate.num_ctas);
        if (candidate.tiling.preconvert == Preconvert::b) return us + unpack_us(p);
        return has_scale_products(p) ? us * kConvertedShare : us;
    }
};

}  // namespace deep_gemm::sm90
