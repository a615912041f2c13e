#include "cache.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <vector>

#include "../util/files.hpp"
#include "../util/json.hpp"
#include "../util/require.hpp"
#include "private_folder.hpp"
#include "settings.hpp"

namespace deep_gemm::jit {
namespace {

constexpr const char* kDrafts = "drafts";

void report(const std::string& text) { std::fprintf(stderr, "deep_gemm: %s\n", text.c_str()); }

/// Notes that an entry was used, in its directory's time: who looks for the oldest finds the one least needed. Once a
/// day is enough.
void note_use(const Descriptor& directory) {
    constexpr time_t kDay = 24 * 60 * 60;
    struct stat facts{};
    if (::fstat(directory.number(), &facts) == 0 && facts.st_mtime < std::time(nullptr) - kDay)
        ::futimens(directory.number(), nullptr);  // impossible in a read-only cache, and not needed there
}

struct KeptEntry {
    std::string path;
    std::filesystem::file_time_type last_use;
    uint64_t bytes = 0;
};

KeptEntry measure(const std::string& path) {
    std::error_code ignored;
    KeptEntry entry{.path = path, .last_use = std::filesystem::last_write_time(path, ignored)};
    for (const std::string& file : paths_in(path)) {
        struct stat facts{};
        if (::lstat(file.c_str(), &facts) == 0) entry.bytes += static_cast<uint64_t>(facts.st_size);
    }
    return entry;
}

std::atomic<int> draft_counter{0};

std::string draft_path(const std::string& root, const std::string& key) {
    return concat(root, "/", kDrafts, "/", key, ".", ::getpid(), ".", draft_counter++);
}

}  // namespace

DiskCache& DiskCache::get() {
    static auto& kCache = *new DiskCache;  // never destroyed: threads may compile while the process ends
    return kCache;
}

DiskCache::DiskCache() : root_(settings().cache_dir) {
    if (root_.empty())
        warn_once("HOME is not set, and DG_JIT_CACHE_DIR names no other place");
    else if (open_folder(root_, kDrafts))
        remove_leftovers(root_ + "/" + kDrafts, "");
}

std::string DiskCache::directory_of(const CacheEntry& entry) const {
    return root_.empty() ? "" : root_ + "/" + kEntries + "/" + entry.name + "." + entry.key;
}

std::optional<CachedImage> DiskCache::find(const CacheEntry& entry, bool locked) {
    std::optional<CachedImage> found;
    if (!root_.empty()) found = find_in(root_, entry, locked);
    for (const std::string& root : settings().more_cache_dirs)
        if (!found) found = find_in(root, entry, locked);
    return found;
}

std::optional<CachedImage> DiskCache::find_in(const std::string& root, const CacheEntry& entry, bool locked) const {
    const std::string path = concat(root, "/", kEntries, "/", entry.name, ".", entry.key);
    Inspected found = inspect(root, entry.name + "." + entry.key, entry.key, entry.output);
    if (found.missing) return std::nullopt;  // where it is the cache that cannot be read, `store` says why
    if (!found.problem.empty()) {
        if (locked)
            report(concat(found.untrusted ? "untrusted" : "damaged", " cache entry ", path, ": ", found.problem,
                          "; compiling it again"));
        return std::nullopt;
    }
    if (settings().dump_ptx && entry.output == Output::cubin && !is_file(path + "/kernel.ptx")) return std::nullopt;
    note_use(found.directory);
    const auto number = [&](const char* name) {
        return static_cast<int>(json::integer(found.facts, name).value_or(0));
    };
    return CachedImage{std::move(found.image),
                       {number("registers"), number("stack_bytes"), number("spill_bytes"),
                        json::text(found.facts, "hidden_waits").value_or("")}};
}

bool DiskCache::store(const CacheEntry& entry, const std::string& text, const Compiled& compiled,
                      double compile_seconds) {
    if (root_.empty()) return false;
    const std::string draft = draft_path(root_, entry.key);
    const std::string final_directory = directory_of(entry);
    std::string problem = make_folder(root_, kEntries);
    if (problem.empty()) problem = make_folder(root_, kDrafts);
    if (problem.empty()) problem = make_directories(draft);
    const auto put = [&](const std::string& name, const std::string& bytes) {
        if (problem.empty()) problem = write_file(draft + name, bytes);
    };
    put("/kernel.cu", text);
    put(image_file(entry.output), compiled.image);
    if (settings().dump_ptx && entry.output == Output::cubin) put("/kernel.ptx", compiled.ptx);
    put(kFacts, facts_json(entry, compiled, compile_seconds));
    if (problem.empty() && std::rename(draft.c_str(), final_directory.c_str()) != 0) {
        // Something stands there that is no empty directory: a damaged entry. Put it out of the way; we hold its lock.
        const std::string damaged = draft + ".damaged";
        std::rename(final_directory.c_str(), damaged.c_str());
        if (std::rename(draft.c_str(), final_directory.c_str()) != 0)
            problem = concat("cannot rename ", draft, " to ", final_directory, ": ", std::strerror(errno));
        remove_quietly(damaged);
    }
    if (problem.empty()) {
        if (settings().cache_max_bytes > 0) keep_within_limit(final_directory);
        return true;
    }
    remove_quietly(draft);
    warn_once(problem);
    return false;
}

void DiskCache::keep_within_limit(const std::string& stored) {
    {
        const std::lock_guard guard(measuring_);
        if (known_bytes_ > 0) known_bytes_ += measure(stored).bytes;
        if (known_bytes_ > 0 && known_bytes_ <= settings().cache_max_bytes) return;
    }
    prune(settings().cache_max_bytes, stored);  // all are measured: what other processes have stored, too
}

int64_t DiskCache::prune(uint64_t max_bytes, const std::string& kept) {
    if (root_.empty() || !open_folder(root_, kEntries) || !make_folder(root_, kDrafts).empty()) return 0;
    std::vector<KeptEntry> entries;
    uint64_t bytes = 0;
    for (const std::string& path : paths_in(root_ + "/" + kEntries)) {
        entries.push_back(measure(path));
        bytes += entries.back().bytes;
    }
    std::ranges::sort(entries, {}, &KeptEntry::last_use);
    int64_t removed = 0;
    for (const KeptEntry& entry : entries) {
        if (bytes <= max_bytes) break;
        if (entry.path == kept) continue;
        // Away by one rename: a reader sees all of an entry or nothing, and of two processes one removes it.
        const std::string away = draft_path(root_, "evicted");
        const bool ours = std::rename(entry.path.c_str(), away.c_str()) == 0;
        if (!ours && errno != ENOENT) continue;
        remove_quietly(away);
        bytes -= entry.bytes;
        removed += ours;
    }
    const std::lock_guard guard(measuring_);
    known_bytes_ = bytes;
    return removed;
}

std::string DiskCache::problem_of(const std::string& directory_name) const {
    const size_t dot = directory_name.rfind('.');
    if (root_.empty() || dot == std::string::npos) return "there is no such entry";
    const std::string key = directory_name.substr(dot + 1);
    const std::string path = concat(root_, "/", kEntries, "/", directory_name);
    const Output output = is_file(path + "/kernel.cubin") ? Output::cubin : Output::ptx;
    const Inspected found = inspect(root_, directory_name, key, output);
    return found.missing && found.problem.empty() ? "there is no such entry" : found.problem;
}

void DiskCache::warn_once(const std::string& problem) {
    static std::once_flag warned;
    std::call_once(warned, [&] {
        report(concat("compiled kernels are kept in memory only: ", problem,
                      ". Set DG_JIT_CACHE_DIR to a directory that this user can write, and nobody else."));
    });
}

}  // namespace deep_gemm::jit
