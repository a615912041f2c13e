// The journey of a checked call of index logits: plan, kernel, parameters, launch.
#pragma once

#include "call.hpp"

namespace deep_gemm {

/// Puts the kernel on torch's current stream. Nothing is launched where there is no query row, no column or no key.
void run_logits(const LogitsCall& call);

}  // namespace deep_gemm
