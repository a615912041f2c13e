#include "cache_entry.hpp"

#include <fcntl.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <vector>

#include "../util/hash.hpp"
#include "../util/json.hpp"
#include "../util/require.hpp"
#include "private_folder.hpp"
#include "settings.hpp"

namespace deep_gemm::jit {
namespace {

constexpr const char* kFormat = "deep_gemm cache 4";

/// Digest of every device header: its path under the include root and its bytes. Read once in a process.
const std::string& headers_digest() {
    static const std::string kDigest = [] {
        namespace fs = std::filesystem;
        const fs::path root = settings().include_dir();
        std::vector<std::string> paths;
        std::error_code error;
        for (const auto& file : fs::recursive_directory_iterator(root, error))
            if (file.is_regular_file()) paths.push_back(file.path().lexically_relative(root).string());
        require_runtime(!error, "cannot list the device headers in ", root.string(), ": ", error.message());
        std::sort(paths.begin(), paths.end());
        Sha256 digest;
        for (const std::string& path : paths) {
            const auto text = read_file((root / path).string());
            require_runtime(text.has_value(), "cannot read the device header ", (root / path).string());
            digest.field(path).field(*text);
        }
        return digest.hex();
    }();
    return kDigest;
}

}  // namespace

const char* name(Output output) {
    return output == Output::cubin ? "cubin" : output == Output::ptx ? "ptx" : "driver_ptx";
}

std::string cache_key(const KernelSource& source, const std::string& target, Output output) {
    Sha256 digest;
    digest.field(kFormat).field(source.name).field(source.text).field(headers_digest());
    digest.field(compiler_identity()).field(target).field(name(output));
    for (const std::string& option : compile_options(target, output)) digest.field(option);
    return digest.hex().substr(0, 32);
}

std::string image_file(Output output) { return output == Output::cubin ? "/kernel.cubin" : "/kernel.ptx"; }

std::string facts_json(const CacheEntry& entry, const Compiled& compiled, double seconds) {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    char time[32];
    std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    std::string options;
    for (const std::string& option : compile_options(entry.target, entry.output)) options += " " + option;
    const ResourceUse& use = compiled.resources;
    return json::write(Object{{"format", kFormat},
                              {"key", entry.key},
                              {"name", entry.name},
                              {"target", entry.target},
                              {"output", name(entry.output)},
                              {"compiler", compiler_identity()},
                              {"options", options.substr(1)},
                              {"created", std::string(time)},
                              {"hidden_waits", use.hidden_waits},
                              {"image_sha256", sha256(compiled.image)},
                              {"image_bytes", static_cast<int64_t>(compiled.image.size())},
                              {"compile_seconds", seconds},
                              {"registers", use.registers},
                              {"stack_bytes", use.stack_bytes},
                              {"spill_bytes", use.spill_bytes}});
}

Inspected inspect(const std::string& root, const std::string& name, const std::string& key, Output output) {
    const Opened folder = open_folder(root, kEntries);
    if (!folder) return {.problem = folder.problem, .missing = true, .untrusted = folder.untrusted};
    const std::string path = concat(root, "/", kEntries, "/", name);
    Opened directory = open_private(folder.file, name, path, O_DIRECTORY);
    if (!directory)
        return {.problem = directory.problem, .missing = directory.problem.empty(), .untrusted = directory.untrusted};
    const auto read = [&](const std::string& file, std::string& bytes) -> Inspected {
        const Opened opened = open_private(directory.file, file.substr(1), path + file, 0);
        if (!opened.problem.empty()) return {.problem = opened.problem, .untrusted = opened.untrusted};
        auto found = read_file(opened.file);
        if (!found) return {.problem = opened ? path + file + " is no readable file" : "it has no" + file};
        bytes = std::move(*found);
        return {};
    };
    Inspected entry;
    std::string text;
    if (Inspected bad = read(kFacts, text); !bad.problem.empty()) return bad;
    entry.facts = json::read(text).value_or(Object());
    if (json::text(entry.facts, "format") != kFormat || json::text(entry.facts, "key") != key)
        return {.problem = "its kernel.json belongs to something else"};
    if (Inspected bad = read(image_file(output), entry.image); !bad.problem.empty()) return bad;
    if (json::integer(entry.facts, "image_bytes") != static_cast<int64_t>(entry.image.size()))
        return {.problem = "its image has another size than when it was written"};
    if (json::text(entry.facts, "image_sha256") != sha256(entry.image))
        return {.problem = "its image is not what was written"};
    entry.directory = std::move(directory.file);
    return entry;
}

}  // namespace deep_gemm::jit
