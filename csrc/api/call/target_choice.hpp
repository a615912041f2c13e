// Which target a user wants, by name.
#pragma once

#include <string>

#include "../../device/target_choice.hpp"

namespace deep_gemm {

/// Refuses a name that there are no kernels for. An empty one is the device's own target.
TargetChoice find_choice(const std::string& target);

/// Tells devices which targets there are. Once, when the library starts.
void announce_targets();

}  // namespace deep_gemm
