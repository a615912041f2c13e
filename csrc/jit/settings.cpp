#include "settings.hpp"

#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "../util/files.hpp"
#include "../util/require.hpp"

namespace deep_gemm::jit {
namespace {

std::string g_package_dir;                     // set by initialize, before any other call
std::vector<std::string> g_nvrtc_directories;  // likewise

std::string text_of(const char* variable) {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
}

bool flag(const char* variable, bool otherwise = false) {
    std::string value = text_of(variable);
    if (value.empty()) return otherwise;
    for (char& letter : value) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    for (const std::string_view no : {"0", "false", "no", "off"})
        if (value == no) return false;
    return true;
}

CheckLayouts check_layouts() {
    if (text_of("DG_CHECK_LAYOUTS").empty()) return CheckLayouts::on_cpu;
    return flag("DG_CHECK_LAYOUTS") ? CheckLayouts::all : CheckLayouts::never;
}

int cpp_standard() {
    constexpr int kNeeded = 20;  // the device code names the fields of its configuration (designated initialisers)
    const std::string value = text_of("DG_JIT_CPP_STANDARD");
    if (value.empty()) return kNeeded;
    const int standard = std::atoi(value.c_str());
    if (standard >= kNeeded) return standard;
    std::fprintf(stderr, "deep_gemm: DG_JIT_CPP_STANDARD=%s is too old for the device code; using %d\n", value.c_str(),
                 kNeeded);
    return kNeeded;
}

std::string cache_dir(std::string path) {
    // No shell has seen a `~` that comes from a configuration file.
    if (path == "~" || path.starts_with("~/")) {
        const std::string home = text_of("HOME");
        if (home.empty()) return "";
        path = home + path.substr(1);
    }
    // The working directory may change later; the cache must not move with it.
    std::error_code error;
    const auto absolute = std::filesystem::absolute(path, error);
    return error ? path : absolute.lexically_normal().string();
}

/// Kernels are kept in the first and read from all.
std::vector<std::string> cache_dirs() {
    std::vector<std::string> found;
    std::istringstream list(text_of("DG_JIT_CACHE_DIR"));
    for (std::string path; std::getline(list, path, ':');)
        if (!path.empty()) found.push_back(cache_dir(path));
    if (found.empty()) found.push_back(cache_dir("~/.deep_gemm"));
    return found;
}

std::string nvcc_compiler() {
    const std::string chosen = text_of("DG_JIT_NVCC_COMPILER");
    if (!chosen.empty()) return chosen;
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
        const std::string path = text_of(variable) + "/bin/nvcc";
        if (!text_of(variable).empty() && is_file(path)) return path;
    }
    std::string_view rest;
    const std::string search = text_of("PATH");
    for (rest = search; !rest.empty();) {
        const size_t end = rest.find(':');
        const std::string path = std::string(rest.substr(0, end)) + "/nvcc";
        if (is_file(path) && ::access(path.c_str(), X_OK) == 0) return path;
        rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    }
    return is_file("/usr/local/cuda/bin/nvcc") ? "/usr/local/cuda/bin/nvcc" : "";
}

uint64_t cache_max_bytes() {
    std::string value = text_of("DG_JIT_CACHE_MAX_MB");
    if (value.empty()) value = "2000";
    const bool number = value.size() <= 12 && value.find_first_not_of("0123456789") == std::string::npos;
    require(number, "DG_JIT_CACHE_MAX_MB must be a whole number of megabytes (0: no limit), got '", value, "'");
    return std::strtoull(value.c_str(), nullptr, 10) * 1'000'000;
}

/// Falls back to NVRTC where there is no nvcc: serving stacks ask for nvcc on machines that have none.
bool use_nvrtc(const std::string& nvcc) {
    if (flag("DG_JIT_USE_NVRTC", true)) return true;
    if (!nvcc.empty()) return false;
    std::fprintf(stderr,
                 "deep_gemm: DG_JIT_USE_NVRTC=0 asks for nvcc, but none was found; using NVRTC. To use nvcc, put it on "
                 "the PATH, or name it in DG_JIT_NVCC_COMPILER.\n");
    return true;
}

Settings read_environment() {
    require_runtime(!g_package_dir.empty(),
                    "deep_gemm's runtime was used before C.initialize(package_dir, ...) was called");
    Settings s;
    s.package_dir = g_package_dir;
    const std::vector<std::string> directories = cache_dirs();
    s.cache_dir = directories.front();
    s.more_cache_dirs.assign(directories.begin() + 1, directories.end());
    std::erase(s.more_cache_dirs, "");
    s.nvrtc_library = text_of("DG_JIT_NVRTC_LIBRARY");
    s.nvrtc_directories = g_nvrtc_directories;
    s.cache_max_bytes = cache_max_bytes();
    s.nvcc_compiler = nvcc_compiler();
    s.use_nvrtc = use_nvrtc(s.nvcc_compiler);
    s.cpp_standard = cpp_standard();
    s.with_lineinfo = flag("DG_JIT_WITH_LINEINFO");
    s.ptxas_verbose = flag("DG_JIT_PTXAS_VERBOSE");
    s.ptxas_check = flag("DG_JIT_PTXAS_CHECK");
    s.refuse = flag("DG_JIT_REFUSE");
    s.target = text_of("DG_TARGET");
    s.autotune = flag("DG_AUTOTUNE");
    s.fp32_scales = flag("DG_FP32_SCALES");
    s.check_layouts = check_layouts();
    s.debug = flag("DG_JIT_DEBUG");
    s.print_compiler_command = flag("DG_JIT_PRINT_COMPILER_COMMAND");
    s.print_load_time = flag("DG_JIT_PRINT_LOAD_TIME");
    s.print_configs = flag("DG_PRINT_CONFIGS");
    s.dump_ptx = flag("DG_JIT_DUMP_ASM") || flag("DG_JIT_DUMP_PTX");
    s.dump_sass = flag("DG_JIT_DUMP_ASM") || flag("DG_JIT_DUMP_SASS");
    return s;
}

}  // namespace

const Settings& settings() {
    static const auto& kSettings = *new Settings(read_environment());  // never destroyed: threads outlive main
    return kSettings;
}

void initialize(const std::string& package_dir, const std::vector<std::string>& nvrtc_directories) {
    g_package_dir = package_dir;
    g_nvrtc_directories = nvrtc_directories;
}

}  // namespace deep_gemm::jit
