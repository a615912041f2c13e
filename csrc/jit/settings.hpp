// The user's settings. The environment is read here and nowhere else, once, at the first use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deep_gemm::jit {

/// Which calls' row counts are read and checked before the launch.
enum class CheckLayouts : uint8_t { never, on_cpu, all };

struct Settings {
    // Where things are.
    std::string package_dir;                   // of deep_gemm in Python: device headers are in its include/
    std::string cache_dir;                     // DG_JIT_CACHE_DIR, or $HOME/.deep_gemm; empty: no disk cache
    std::vector<std::string> more_cache_dirs;  // behind the first of DG_JIT_CACHE_DIR=a:b: kernels are read there, too
    uint64_t cache_max_bytes = 0;              // DG_JIT_CACHE_MAX_MB; 0: no limit
    std::string nvrtc_library;                 // DG_JIT_NVRTC_LIBRARY: this file and no other
    std::vector<std::string> nvrtc_directories;  // where NVRTC may lie, the likeliest first; then the system's path

    // The compiler.
    bool use_nvrtc = true;       // DG_JIT_USE_NVRTC, or there is no nvcc
    std::string nvcc_compiler;   // DG_JIT_NVCC_COMPILER, or nvcc of $CUDA_HOME, or of the PATH
    int cpp_standard = 20;       // DG_JIT_CPP_STANDARD
    bool with_lineinfo = false;  // DG_JIT_WITH_LINEINFO
    bool ptxas_verbose = false;  // DG_JIT_PTXAS_VERBOSE
    bool ptxas_check = false;    // DG_JIT_PTXAS_CHECK: refuse kernels that spill or wait where their source does not

    bool refuse = false;  // DG_JIT_REFUSE: calls whose kernel is in no cache fail, where they would compile it

    std::string target;  // DG_TARGET: an older one that GPUs stand in for; empty: each GPU's own

    bool autotune = false;  // DG_AUTOTUNE: measure the cheapest few configs of each new problem

    bool fp32_scales = false;  // DG_FP32_SCALES: see CallSettings

    CheckLayouts check_layouts = CheckLayouts::on_cpu;  // DG_CHECK_LAYOUTS

    // What to print and keep.
    bool debug = false;                   // DG_JIT_DEBUG
    bool print_compiler_command = false;  // DG_JIT_PRINT_COMPILER_COMMAND
    bool print_load_time = false;         // DG_JIT_PRINT_LOAD_TIME
    bool print_configs = false;           // DG_PRINT_CONFIGS
    bool dump_ptx = false;                // DG_JIT_DUMP_PTX or _ASM
    bool dump_sass = false;               // DG_JIT_DUMP_SASS or _ASM

    std::string include_dir() const { return package_dir + "/include"; }
};

/// The settings of this process, read from the environment by the first call.
const Settings& settings();

/// Called once from Python, when the extension is loaded: where the package lies, and directories that may hold NVRTC.
/// Reads no environment yet, so a program may still set variables between import and first use.
void initialize(const std::string& package_dir, const std::vector<std::string>& nvrtc_directories);

}  // namespace deep_gemm::jit
