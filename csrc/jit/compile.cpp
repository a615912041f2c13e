#include "compile.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "../util/files.hpp"
#include "../util/hash.hpp"
#include "../util/require.hpp"
#include "nvcc.hpp"
#include "nvrtc.hpp"
#include "private_folder.hpp"
#include "settings.hpp"
#include "target_support.hpp"

namespace deep_gemm::jit {
namespace {

/// The number that stands right before a phrase, as in "16 bytes stack frame".
int number_before(const std::string& log, size_t phrase) {
    size_t begin = phrase;
    while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
    return std::atoi(log.c_str() + begin);
}

/// Keeps the source of a kernel that did not compile. Returns a sentence that says where, or why it could not.
std::string keep_failed_source(const KernelSource& source) {
    std::error_code error;
    const auto temporary = std::filesystem::temp_directory_path(error);
    const std::string base =
        settings().cache_dir.empty() ? (error ? "/tmp" : temporary.string()) : settings().cache_dir;
    const std::string path = base + "/failed/" + source.name + "." + sha256(source.text).substr(0, 16) + ".cu";
    std::string problem = make_folder(base, "failed");
    if (problem.empty()) problem = write_file(path, source.text);
    return problem.empty() ? "The source is kept in " + path : "The source could not be kept: " + problem;
}

}  // namespace

const std::string& compiler_identity() { return settings().use_nvrtc ? nvrtc::identity() : nvcc::identity(); }

std::vector<std::string> compile_options(const std::string& target, Output output) {
    return settings().use_nvrtc ? nvrtc::options(target, output) : nvcc::options(target, output);
}

ResourceUse parse_ptxas_log(const std::string& log) {
    // Lines of every function are added up: a called function's stack counts as much as the kernel's.
    ResourceUse use;
    const auto each = [&log](const char* phrase, auto&& take) {
        for (size_t at = log.find(phrase); at != std::string::npos; at = log.find(phrase, at + 1))
            take(number_before(log, at));
    };
    each(" bytes stack frame", [&](int bytes) { use.stack_bytes += bytes; });
    each(" bytes spill stores", [&](int bytes) { use.spill_bytes += bytes; });
    each(" registers", [&](int count) { use.registers = std::max(use.registers, count); });
    return use;
}

void check_resources(const std::string& name, const ResourceUse& resources) {
    if (!settings().ptxas_check) return;
    require_runtime(resources.spill_bytes == 0 && resources.stack_bytes == 0, "kernel ", name,
                    " spills: ptxas gave it ", resources.registers, " registers, ", resources.spill_bytes,
                    " bytes of spills and ", resources.stack_bytes,
                    " bytes of stack a thread (DG_JIT_PTXAS_CHECK=1 refuses any)");
    require_runtime(resources.hidden_waits.empty(), "kernel ", name,
                    " waits where its source does not, which DG_JIT_PTXAS_CHECK=1 refuses. ptxas says: ",
                    resources.hidden_waits);
}

Compiled compile(const CompileJob& job) {
    require(job.target.starts_with("sm_") && job.target.size() > 3, "\"", job.target,
            "\" is no target; one looks like \"sm_90a\"");
    try {
        Compiled result = settings().use_nvrtc ? nvrtc::compile(job) : nvcc::compile(job);
        result.resources = parse_ptxas_log(result.log);
        if (const TargetSupport* support = job.output == Output::cubin ? support_of(job.target) : nullptr) {
            result.resources.hidden_waits = support->hidden_waits(result.log);
            support->finish(job.source.text, result.image);
        }
        if (settings().debug || settings().ptxas_verbose)
            std::fprintf(stderr, "deep_gemm: log of %s for %s:\n%s\n", job.source.name.c_str(), job.target.c_str(),
                         result.log.c_str());
        return result;
    } catch (const Error& error) {
        fail(error.kind(), "kernel ", job.source.name, " was not compiled for ", job.target, ": ", error.what(), "\n",
             keep_failed_source(job.source));
    }
}

}  // namespace deep_gemm::jit
