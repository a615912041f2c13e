// Waits for wgmma that stand in the machine code and not in the source: after each one before the next starts, or at a
// place of ptxas's own choice. It is no warning to ptxas, only information, and can cost half the speed.
#pragma once

#include <string>

namespace deep_gemm::jit::sm90 {

/// ptxas's reason, as "(C7514) Potential Performance Loss: ...".
std::string hidden_waits(const std::string& log);

}  // namespace deep_gemm::jit::sm90
