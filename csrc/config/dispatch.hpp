// Selection for the architecture of a problem.
#pragma once

#include "select.hpp"
#include "sm100/spec.hpp"
#include "sm120/spec.hpp"
#include "sm80/spec.hpp"
#include "sm90/spec.hpp"

namespace deep_gemm {

/// Calls `use` with what a problem's architecture brings to selection.
template <typename Use>
auto with_spec(const Problem& p, const Use& use) {
    switch (p.arch) {  // one that is forgotten does not compile: -Wswitch
        case Arch::sm80:
            return use(sm80::Spec{});
        case Arch::sm90:
            return use(sm90::Spec{});
        case Arch::sm100:
            return use(sm100::Spec{});
        case Arch::sm120:
            return use(sm120::Spec{});
    }
    fail(ErrorKind::runtime, "an architecture without a row in with_spec (a bug: please report it)");
}

/// The rejection of a tiling that no problem with these operands is offered.
inline constexpr std::string_view kUnknownTiling = "selection knows no such config";

/// What becomes of a tiling that somebody names, whatever it wastes.
inline Candidate make_candidate(const Problem& p, const Tiling& tiling, Tolerated tolerated = Tolerated::waste) {
    return with_spec(p, [&]<typename Spec>(Spec) {
        return Spec::has_tiling(p, tiling) ? make_candidate<Spec>(p, tiling, Spec::cost_constants(p), tolerated)
                                           : Candidate{.tiling = tiling, .rejection = kUnknownTiling};
    });
}

inline std::vector<Candidate> enumerate(const Problem& p) {
    return with_spec(p, [&]<typename Spec>(Spec) { return enumerate<Spec>(p); });
}

inline Choice finish(const Problem& p, const Candidate& candidate) {
    return with_spec(p, [&]<typename Spec>(Spec) { return Spec::finish(p, candidate); });
}

inline Choice select(const Problem& p) {
    return with_spec(p, [&]<typename Spec>(Spec) { return select<Spec>(p); });
}

}  // namespace deep_gemm
