// What the GPUs that a module names as its target have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "parser.hpp"

namespace deep_gemm::simulator {

/// A target of the compiler: "sm_90a" is 90 and has what no other generation gets.
struct Target {
    std::string name;
    unsigned number = 0;
    bool specific = false;  // a name that ends in a or f
};

/// Throws where a name is no target, or one that the simulator does not know.
Target parse_target(std::string_view name);
/// Bytes of shared memory that a block can have.
uint32_t shared_bytes_of(const Target& target);
/// Why a statement cannot be compiled for a target, in a sentence; empty where it can.
std::string why_not_on(const Target& target, const Statement& statement);

}  // namespace deep_gemm::simulator
