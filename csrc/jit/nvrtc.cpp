#include "nvrtc.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "../util/files.hpp"
#include "../util/process.hpp"
#include "../util/require.hpp"
#include "settings.hpp"

namespace deep_gemm::jit::nvrtc {
namespace {

using Program = struct ProgramTag*;
using Status = int;  // nvrtcResult; zero is success
constexpr Status kCompilationFailed = 6;

struct Api {
    std::string path;
    std::string identity;
    int major = 0;
    int minor = 0;
    Status (*Version)(int* major, int* minor);
    const char* (*GetErrorString)(Status);
    Status (*CreateProgram)(Program*, const char* text, const char* name, int headers, const char* const* contents,
                            const char* const* names);
    Status (*DestroyProgram)(Program*);
    Status (*CompileProgram)(Program, int count, const char* const* options);
    Status (*GetProgramLogSize)(Program, size_t*);
    Status (*GetProgramLog)(Program, char*);
    Status (*GetPTXSize)(Program, size_t*);
    Status (*GetPTX)(Program, char*);
    Status (*GetCUBINSize)(Program, size_t*);
    Status (*GetCUBIN)(Program, char*);
};

/// Files named libnvrtc.so* in a directory, the newest version first. Variants (libnvrtc.alt.so) are left out.
std::vector<std::string> libraries_in(const std::string& directory, const std::string& stem) {
    std::vector<std::string> found;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
        if (entry.path().filename().string().starts_with(stem + ".so")) found.push_back(entry.path().string());
    // Longer names carry more of the version: libnvrtc.so.13 before libnvrtc.so, which may be a stub's name.
    std::sort(found.begin(), found.end(), std::greater<>());
    return found;
}

std::vector<std::string> candidates() {
    if (!settings().nvrtc_library.empty()) return {settings().nvrtc_library};
    std::vector<std::string> paths;
    for (const std::string& directory : settings().nvrtc_directories)
        for (std::string& path : libraries_in(directory, "libnvrtc")) paths.push_back(std::move(path));
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) paths.emplace_back(name);
    return paths;
}

/// The library's build id, which tells two builds of one version apart. Empty if it has none.
std::string build_id(void* symbol) {
    struct Search {
        uintptr_t address;
        std::string id;
    } search{reinterpret_cast<uintptr_t>(symbol), ""};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
            auto& search = *static_cast<Search*>(data);
            const auto begin = info->dlpi_phdr;
            const auto end = begin + info->dlpi_phnum;
            const bool holds = std::any_of(begin, end, [&](const ElfW(Phdr) & part) {
                const uintptr_t start = info->dlpi_addr + part.p_vaddr;
                return part.p_type == PT_LOAD && search.address >= start && search.address - start < part.p_memsz;
            });
            if (!holds) return 0;
            for (auto part = begin; part != end; ++part) {
                if (part->p_type != PT_NOTE) continue;
                const char* note = reinterpret_cast<const char*>(info->dlpi_addr + part->p_vaddr);
                const char* last = note + part->p_memsz;
                while (note + sizeof(ElfW(Nhdr)) <= last) {
                    ElfW(Nhdr) head;
                    std::memcpy(&head, note, sizeof(head));
                    const char* name = note + sizeof(head);
                    const char* body = name + (head.n_namesz + 3) / 4 * 4;
                    if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
                        for (unsigned i = 0; i < std::min(head.n_descsz, 8u); ++i) {
                            char digits[3];
                            std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(body[i]));
                            search.id += digits;
                        }
                        return 1;
                    }
                    note = body + (head.n_descsz + 3) / 4 * 4;
                }
            }
            return 1;
        },
        &search);
    return search.id;
}

/// What stands for a build id where there is none (NVRTC 12.4). Fast rather than strong, as tens of megabytes are read
/// in each process: it tells builds apart that nobody made alike on purpose.
std::string digest_of_library(const std::string& path) {
    const auto bytes = read_file(path);
    require_runtime(bytes.has_value(), "cannot read the compiler library ", path);
    uint64_t state = bytes->size();
    for (size_t at = 0; at < bytes->size(); at += sizeof(uint64_t)) {
        uint64_t word = 0;
        std::memcpy(&word, bytes->data() + at, std::min(sizeof(word), bytes->size() - at));
        state = (state ^ word) * 0x9E3779B97F4A7C15;
        state ^= state >> 32;
    }
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(state));
    return digits;
}

/// NVRTC opens its builtins by name, and the PyPI package's folder is on no search path: load them ahead of it.
void load_builtins(const std::string& library) {
    const std::string directory = std::filesystem::path(library).parent_path().string();
    if (directory.empty()) return;
    for (const std::string& path : libraries_in(directory, "libnvrtc-builtins"))
        if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
}

Api load() {
    std::string tried;
    for (const std::string& path : candidates()) {
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            const char* reason = dlerror();
            tried += concat("\n  ", reason == nullptr ? path.c_str() : reason);
            continue;
        }
        Api api{};
        bool complete = true;
        const auto find = [&](auto& call, const char* symbol) {
            call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, symbol));
            complete = complete && call != nullptr;
        };
        find(api.Version, "nvrtcVersion");
        find(api.GetErrorString, "nvrtcGetErrorString");
        find(api.CreateProgram, "nvrtcCreateProgram");
        find(api.DestroyProgram, "nvrtcDestroyProgram");
        find(api.CompileProgram, "nvrtcCompileProgram");
        find(api.GetProgramLogSize, "nvrtcGetProgramLogSize");
        find(api.GetProgramLog, "nvrtcGetProgramLog");
        find(api.GetPTXSize, "nvrtcGetPTXSize");
        find(api.GetPTX, "nvrtcGetPTX");
        find(api.GetCUBINSize, "nvrtcGetCUBINSize");
        find(api.GetCUBIN, "nvrtcGetCUBIN");
        if (!complete || api.Version(&api.major, &api.minor) != 0) {
            tried += concat("\n  ", path, ": not a usable NVRTC");
            continue;
        }
        Dl_info info{};
        dladdr(reinterpret_cast<void*>(api.Version), &info);
        api.path = info.dli_fname != nullptr ? info.dli_fname : path;
        const std::string build = build_id(reinterpret_cast<void*>(api.Version));
        api.identity = concat("nvrtc ", api.major, ".", api.minor,
                              build.empty() ? " digest " + digest_of_library(api.path) : " build " + build);
        return api;
    }
    fail(
        ErrorKind::runtime,
        "NVRTC, the library that compiles kernels, was not found. Install it (pip install nvidia-cuda-nvrtc), name it in "
        "DG_JIT_NVRTC_LIBRARY, or use a toolkit's nvcc (DG_JIT_USE_NVRTC=0). Tried:",
        tried);
}

const Api& api() {
    static const Api kApi = load();
    return kApi;
}

void check(Status status, const char* call) {
    require_runtime(status == 0, call, " failed: ", status == 0 ? "" : api().GetErrorString(status), " (", api().path,
                    ")");
}

/// Fetches one of a program's texts: its size first, then its bytes.
std::string fetch(Program program, Status (*size_of)(Program, size_t*), Status (*copy)(Program, char*),
                  const char* what) {
    size_t bytes = 0;
    check(size_of(program, &bytes), what);
    std::string text(bytes, '\0');
    if (bytes != 0) check(copy(program, text.data()), what);
    return text;
}

std::string without_final_zeros(std::string text) {
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
}

struct ProgramOwner {
    Program program = nullptr;
    ~ProgramOwner() { api().DestroyProgram(&program); }
};

}  // namespace

const std::string& identity() { return api().identity; }

std::string library_path() { return api().path; }

std::vector<std::string> options(const std::string& target, Output output) {
    const bool ptx = output != Output::cubin;
    std::vector<std::string> list = {
        "--gpu-architecture=" + (ptx ? "compute_" + target.substr(target.find('_') + 1) : target),
        concat("--std=c++", settings().cpp_standard),
        "--device-as-default-execution-space",
        "--ptxas-options=--verbose",  // what it says of spills is checked and kept; costs no time
        "--ptxas-options=--register-usage-level=10",
    };
    // The simulator's reports name source lines.
    if (output == Output::ptx || settings().with_lineinfo) list.emplace_back("--generate-line-info");
    // Textures and the CUDA runtime's device calls are not declared (printf is), and NVRTC keeps no cache of its own
    // beside ours: 5 of 43 ms for a small kernel.
    if (api().major >= 13) list.insert(list.end(), {"--minimal", "--no-cache"});
    return list;
}

Compiled compile(const CompileJob& job) {
    std::vector<std::string> arguments = options(job.target, job.output);
    arguments.push_back("--include-path=" + settings().include_dir());
    if (settings().print_compiler_command)
        std::fprintf(stderr, "deep_gemm: %s (%s) %s %s.cu\n", identity().c_str(), api().path.c_str(),
                     command_line(arguments).c_str(), job.source.name.c_str());
    static const bool kBuiltinsLoaded = (load_builtins(api().path), true);
    (void)kBuiltinsLoaded;
    ProgramOwner owner;
    check(api().CreateProgram(&owner.program, job.source.text.c_str(), (job.source.name + ".cu").c_str(), 0, nullptr,
                              nullptr),
          "nvrtcCreateProgram");
    std::vector<const char*> pointers;
    for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
    const Status status = api().CompileProgram(owner.program, static_cast<int>(pointers.size()), pointers.data());
    Compiled result;
    result.log =
        without_final_zeros(fetch(owner.program, api().GetProgramLogSize, api().GetProgramLog, "nvrtcGetProgramLog"));
    if (status != 0)
        fail(ErrorKind::runtime, identity(), status == kCompilationFailed ? " refused the source" : " failed", " (",
             api().GetErrorString(status), ")\n", result.log);
    if (job.output != Output::cubin || job.want_ptx)
        result.ptx = without_final_zeros(fetch(owner.program, api().GetPTXSize, api().GetPTX, "nvrtcGetPTX"));
    result.image = job.output != Output::cubin
                       ? result.ptx
                       : fetch(owner.program, api().GetCUBINSize, api().GetCUBIN, "nvrtcGetCUBIN");
    return result;
}

}  // namespace deep_gemm::jit::nvrtc
