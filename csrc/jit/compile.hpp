// Generated source to machine code, by whichever compiler the settings choose.
#pragma once

#include <string>
#include <vector>

#include "kernel.hpp"

namespace deep_gemm::jit {

/// What ptxas says a kernel uses. All zero for PTX, which ptxas has not seen.
struct ResourceUse {
    int registers = 0;              // of a thread, at entry
    int stack_bytes = 0;            // local memory of a thread: arrays that did not fit registers
    int spill_bytes = 0;            // stored because the registers did not suffice
    std::string hidden_waits = "";  // ptxas's reason for waiting where the source does not: see target_support.hpp
};

struct CompileJob {
    const KernelSource& source;
    std::string target;  // "sm_90a"
    Output output = Output::cubin;
    bool want_ptx = false;  // beside a cubin, for DG_JIT_DUMP_PTX
};

struct Compiled {
    std::string image;
    std::string ptx;  // where wanted
    std::string log;  // warnings and what ptxas says
    ResourceUse resources;
};

/// Name, version and build of the compiler in use: "nvrtc 13.0 build 65be0d...". Two that differ get different keys.
const std::string& compiler_identity();

/// Options that decide what the compiler makes, without paths: they are part of the key.
std::vector<std::string> compile_options(const std::string& target, Output output);

/// Runs the compiler. Throws with its log; the source of a kernel that does not compile is kept, and the error says
/// where.
Compiled compile(const CompileJob& job);

/// Reads what `ptxas --verbose` says of resources out of a compiler's log.
ResourceUse parse_ptxas_log(const std::string& log);

/// Throws if DG_JIT_PTXAS_CHECK is set and the kernel keeps registers in memory or waits where its source does not.
void check_resources(const std::string& name, const ResourceUse& resources);

}  // namespace deep_gemm::jit
