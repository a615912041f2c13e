// DG_AUTOTUNE: measures the cheapest few candidates of a new problem with the tensors of the call that brought it.
#pragma once

#include <functional>

#include "../call/call.hpp"
#include "plan_cache.hpp"

namespace deep_gemm {

/// Puts a call on its stream with a plan.
using LaunchCall = std::function<void(const GemmCall&, const LaunchPlan&)>;

/// The plan that serves a call whose plan was only the model's pick. Measures, waits for the stream, and remembers the
/// winner here and on disk. During a capture, or another thread's measuring, the pick serves, and a later call
/// measures.
LaunchPlan tune(Device& device, const GemmCall& call, const LaunchPlan& pick, void* stream, const LaunchCall& launch);

}  // namespace deep_gemm
