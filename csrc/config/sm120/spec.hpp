// SM120 as selection sees it (ArchSpec, csrc/config/tilings.hpp): SM80, with tiles of its own, and with its cost model
// by other figures.
#pragma once

#include "../sm80/spec.hpp"
#include "cost_constants.hpp"
#include "tiles.hpp"

namespace deep_gemm::sm120 {

struct Spec : sm80::Spec {
    static std::vector<Tiling> tilings(const Problem& p) { return sm120::tilings(p); }
    static bool has_tiling(const Problem& p, const Tiling& tiling) { return sm120::has_tiling(p, tiling); }
    static GemmConfig configure(const Problem& p, const Tiling& tiling) { return sm120::configure(p, tiling); }
    static sm80::CostConstants cost_constants(const Problem& p) { return sm120::cost_constants(p.target); }
    static std::string_view rejection(const Problem& p, const GemmConfig& c, int64_t tiles) {
        const std::string_view reason = sm80::Spec::rejection(p, c, tiles);
        return reason.empty() ? split_rejection(p, c, tiles) : reason;
    }
};

}  // namespace deep_gemm::sm120
