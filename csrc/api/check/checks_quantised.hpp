// Checks of a D that is stored with scales of its own: d=(q, s).
#pragma once

#include "checks.hpp"

namespace deep_gemm {

/// The scales beside a D whose matrix is known: which they are, and where they lie. Nothing where there are none, and D
/// needs none.
void check_output_scales(GemmCall& call, const OutputArgument& d, const Axes& axes);

/// Of a checked call: its scales can mean one thing only.
void check_lone_words(const GemmCall& call);

}  // namespace deep_gemm
