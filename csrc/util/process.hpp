// Running another program and collecting what it prints.
#pragma once

#include <string>
#include <vector>

namespace deep_gemm {

struct ProcessResult {
    bool succeeded = false;
    std::string ending;  // "exited with status 2", "was killed by signal 9 (Killed)": for messages
    std::string output;  // standard output and standard error, as they came
};

/// How a command would be typed.
std::string command_line(const std::vector<std::string>& arguments);

/// Runs a program to its end, with TMPDIR as given. A program that cannot be started is a result too, never an
/// exception.
ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& tmpdir = "");

}  // namespace deep_gemm
