#include "target_choice.hpp"

namespace deep_gemm {
namespace {

constinit KnownTargets g_targets;

}  // namespace

void set_known_targets(const KnownTargets& targets) { g_targets = targets; }

const KnownTargets& known_targets() { return g_targets; }

}  // namespace deep_gemm
