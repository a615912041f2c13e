// Which of several kernels was fastest when they were measured, kept on disk beside the kernels.
//
// One file for each question, `<cache_dir>/tuned/<key>.json`, which appears by one rename. The key is a digest of all
// that the answer depends on, and the answer names a kernel by its cache key: neither depends on where the file lies,
// and a file that is damaged or answers something else names no kernel that its reader knows.
#pragma once

#include <optional>
#include <string>

namespace deep_gemm::jit {

struct Winner {
    std::string kernel;  // its cache key
    std::string device;  // this and what follows: for people who read the file
    std::string problem;
    std::string measured;  // what was compared, with times
};

/// The winning kernel's key, if it is known.
std::optional<std::string> find_winner(const std::string& key);

/// Keeps a winner for later processes. Where that is impossible, says so once on stderr.
void store_winner(const std::string& key, const Winner& winner);

/// Reports a file that names no kernel of the caller's: damaged, or put there by hand.
void report_foreign_winner(const std::string& key);

}  // namespace deep_gemm::jit
