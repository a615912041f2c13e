#include "nvcc.hpp"

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <mutex>

#include "../util/files.hpp"
#include "../util/process.hpp"
#include "../util/require.hpp"
#include "settings.hpp"

namespace deep_gemm::jit::nvcc {
namespace {

const std::string& compiler_path() { return settings().nvcc_compiler; }

/// A directory for one compilation, removed at its end.
struct WorkDirectory {
    static constexpr std::string_view kBeginning = "deep_gemm-nvcc-";
    std::string path;
    WorkDirectory() {
        std::error_code error;
        const auto base = std::filesystem::temp_directory_path(error);
        const std::string folder = error ? "/tmp" : base.string();
        static std::once_flag swept;
        std::call_once(swept, [&] { remove_leftovers(folder, kBeginning); });
        path = concat(folder, "/", kBeginning, "XXXXXX");
        require_runtime(::mkdtemp(path.data()) != nullptr, "nvcc needs a temporary directory, but ", path,
                        " cannot be created: ", std::strerror(errno), " (set TMPDIR)");
    }
    ~WorkDirectory() { remove_quietly(path); }
};

std::string run(const std::vector<std::string>& command, const std::string& tmpdir = "") {
    if (settings().print_compiler_command) std::fprintf(stderr, "deep_gemm: %s\n", command_line(command).c_str());
    const ProcessResult result = run_process(command, tmpdir);
    if (!result.succeeded) {
        const bool killed = result.ending.starts_with("was killed");
        fail(ErrorKind::runtime, command[0], " ", result.ending,
             killed ? "; if nobody did so on purpose, the machine ran out of memory" : "",
             "\n  command: ", command_line(command), "\n", result.output);
    }
    return result.output;
}

std::string read_output(const std::string& path, const std::string& log) {
    auto bytes = read_file(path);
    require_runtime(bytes && !bytes->empty(), compiler_path(), " ended without an error but wrote no ", path, "\n",
                    log);
    return std::move(*bytes);
}

}  // namespace

const std::string& identity() {
    static const std::string kIdentity = [] {
        // The last lines name the release and the build: "Cuda compilation tools, release 13.0, V13.0.88".
        const std::string text = run({compiler_path(), "--version"});
        const size_t release = text.find("release ");
        require_runtime(release != std::string::npos, compiler_path(), " --version prints no release; is it nvcc?\n",
                        text);
        std::string line = text.substr(release + 8, text.find('\n', release) - release - 8);
        return "nvcc " + line;
    }();
    return kIdentity;
}

std::vector<std::string> options(const std::string& target, Output output) {
    const bool ptx = output != Output::cubin;
    std::vector<std::string> list = {
        ptx ? "--ptx" : "--cubin",
        "--gpu-architecture=" + (ptx ? "compute_" + target.substr(target.find('_') + 1) : target),
        concat("--std=c++", settings().cpp_standard),
        "--expt-relaxed-constexpr",
        "--optimize=3",
        "--ptxas-options=--verbose,--register-usage-level=10",
    };
    if (output == Output::ptx || settings().with_lineinfo) list.emplace_back("--generate-line-info");
    return list;
}

Compiled compile(const CompileJob& job) {
    const WorkDirectory work;
    const std::string source = work.path + "/" + job.source.name + ".cu";
    const std::string problem = write_file(source, job.source.text);
    require_runtime(problem.empty(), "nvcc's input: ", problem);
    const auto make = [&](Output output, const std::string& path) {
        std::vector<std::string> command = {compiler_path()};
        for (std::string& option : options(job.target, output)) command.push_back(std::move(option));
        for (const std::string& part : {"--include-path=" + settings().include_dir(), "--output-file=" + path, source})
            command.push_back(part);
        return run(command, work.path);  // what nvcc leaves when it is killed goes with the directory
    };
    Compiled result;
    const std::string image = work.path + "/image";
    result.log = make(job.output, image);
    result.image = read_output(image, result.log);
    if (job.output != Output::cubin) {
        result.ptx = result.image;
    } else if (job.want_ptx) {
        const std::string ptx = work.path + "/image.ptx";
        result.ptx = read_output(ptx, make(Output::ptx, ptx));
    }
    return result;
}

}  // namespace deep_gemm::jit::nvcc
