#include "winners.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "../util/files.hpp"
#include "../util/json.hpp"
#include "../util/require.hpp"
#include "private_folder.hpp"
#include "settings.hpp"

namespace deep_gemm::jit {
namespace {

constexpr const char* kFormat = "deep_gemm tuned 2";

constexpr const char* kFolder = "tuned";

std::string file_of(const std::string& key) { return concat(settings().cache_dir, "/", kFolder, "/", key, ".json"); }

void warn_once(const std::string& problem) {
    static std::once_flag warned;
    std::call_once(warned, [&] {
        std::fprintf(stderr, "deep_gemm: what DG_AUTOTUNE measures is kept in memory only: %s\n", problem.c_str());
    });
}

}  // namespace

std::optional<std::string> find_winner(const std::string& key) {
    if (settings().cache_dir.empty()) return std::nullopt;
    const Opened folder = open_folder(settings().cache_dir, kFolder);
    const Opened file = folder ? open_private(folder.file, key + ".json", file_of(key), 0) : Opened{};
    if (const Opened& last = folder ? file : folder; last.untrusted) {
        warn_once(last.problem);
        return std::nullopt;
    }
    const auto text = read_file(file.file);
    if (!text) return std::nullopt;
    // Anything but an answer to this question is no kernel's key, and the caller reports it.
    const Object facts = json::read(*text).value_or(Object());
    if (json::text(facts, "format") != kFormat || json::text(facts, "key") != key) return "";
    return json::text(facts, "winner").value_or("");
}

void store_winner(const std::string& key, const Winner& winner) {
    const std::string& root = settings().cache_dir;
    static std::atomic<int> counter{0};
    const std::string draft = concat(root, "/drafts/", key, ".", ::getpid(), ".", counter++);
    std::string problem = root.empty() ? "there is no cache directory" : make_folder(root, "drafts");
    if (problem.empty()) problem = make_folder(root, kFolder);
    if (problem.empty())
        problem = write_file(draft, json::write(Object{{"format", kFormat},
                                                       {"key", key},
                                                       {"winner", winner.kernel},
                                                       {"device", winner.device},
                                                       {"problem", winner.problem},
                                                       {"measured", winner.measured}}));
    if (problem.empty() && std::rename(draft.c_str(), file_of(key).c_str()) != 0)
        problem = concat("cannot rename ", draft, " to ", file_of(key), ": ", std::strerror(errno));
    if (problem.empty()) return;
    if (!root.empty()) remove_quietly(draft);
    warn_once(problem);
}

void report_foreign_winner(const std::string& key) {
    std::fprintf(stderr, "deep_gemm: %s is damaged or belongs to something else; measuring again\n",
                 file_of(key).c_str());
}

}  // namespace deep_gemm::jit
