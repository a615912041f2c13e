// What DG_AUTOTUNE chooses among for a problem, and what it chose when this was measured before.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../../config/candidate.hpp"
#include "../../device/device.hpp"

namespace deep_gemm {

struct Tuning {
    std::vector<Choice> candidates = {};    // the model's pick first
    std::vector<std::string> kernels = {};  // their keys in the disk cache
    std::string key = {};                   // of the answer, see make_tuning
};

/// The answer's key: the problem, the device, and the kernels measured. Those have keys of their own, digests of
/// source, device headers, compiler, options and target, so that a change of any of them, or of selection, measures
/// again.
Tuning make_tuning(const Device& device, const Problem& problem);

/// Which candidate was best when it was measured: by this process, another, or on another machine with this device.
std::optional<size_t> find_winner(const Tuning& tuning, bool report = true);

}  // namespace deep_gemm
