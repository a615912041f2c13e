// Gated activations: what a call says of one, and which products it goes with.
#pragma once

#include <optional>

#include "../../util/ffi.hpp"
#include "../call/call.hpp"

namespace deep_gemm {

/// As Python gives it: the kind, the rows, and the bits of limit, alpha and up_shift. None where there is none.
using GateRecord = std::optional<ffi::Integers>;

/// Of a call whose operands' extents are known. D's columns follow from it.
void check_gate(GemmCall& call, const GateRecord& gate);

/// What D has so many of, for errors.
inline const char* columns_name(const Problem& problem) { return problem.gate.any() ? "N / 2" : "N"; }

/// Refuses what no kernel does yet, of a problem with a gate whose operands are known.
void require_gate_is_served(const Problem& problem);

}  // namespace deep_gemm
