// What an architecture adds to compiling for it: it reads the compiler's log, and edits machine code.
#pragma once

#include <string>

namespace deep_gemm::jit {

struct TargetSupport {
    const char* beginning;  // of the targets' names

    /// ptxas's reason for waiting where the source does not, out of its log; empty where it gives none.
    std::string (*hidden_waits)(const std::string& log);

    /// Does to a cubin what lines of its source ask for. (Entries of the disk cache hold what this made: a change here
    /// is one of kFormat there.)
    void (*finish)(const std::string& source, std::string& cubin);
};

/// Null where an architecture adds nothing.
const TargetSupport* support_of(const std::string& target);

}  // namespace deep_gemm::jit
