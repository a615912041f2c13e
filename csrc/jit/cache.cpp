#include "cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <thread>

#include "../util/files.hpp"
#include "../util/hash.hpp"
#include "../util/interrupt.hpp"
#include "../util/json.hpp"
#include "../util/require.hpp"
#include "private_folder.hpp"
#include "settings.hpp"

namespace deep_gemm::jit {
namespace {

constexpr const char* kFormat = "deep_gemm cache 4";
constexpr const char* kFacts = "/kernel.json";
constexpr const char* kEntries = "cache";
constexpr const char* kDrafts = "drafts";

std::string image_file(Output output) { return output == Output::cubin ? "/kernel.cubin" : "/kernel.ptx"; }

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

struct Inspected {
    std::string problem = "";  // what is wrong with an entry; empty where it is whole
    bool missing = false;      // there is no entry
    bool untrusted = false;
    Object facts = {};
    std::string image = "";
    Descriptor directory = Descriptor();
};

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
    return root_.empty() ? "" : root_ + "/cache/" + entry.name + "." + entry.key;
}

std::optional<CachedImage> DiskCache::find(const CacheEntry& entry, bool locked) {
    if (root_.empty()) return std::nullopt;
    Inspected found = inspect(root_, entry.name + "." + entry.key, entry.key, entry.output);
    if (found.missing) return std::nullopt;  // where it is the cache that cannot be read, `store` says why
    if (!found.problem.empty()) {
        if (locked)
            report(concat(found.untrusted ? "untrusted" : "damaged", " cache entry ", directory_of(entry), ": ",
                          found.problem, "; compiling it again"));
        return std::nullopt;
    }
    if (settings().dump_ptx && entry.output == Output::cubin && !is_file(directory_of(entry) + "/kernel.ptx"))
        return std::nullopt;
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
        if (settings().cache_max_bytes > 0) prune(settings().cache_max_bytes, final_directory);
        return true;
    }
    remove_quietly(draft);
    warn_once(problem);
    return false;
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

int DiskCache::lock_file() {
    // One file, one byte of it for each key: no lock files pile up. It stays open, because closing any descriptor of a
    // file drops all of the process's locks on it.
    static std::mutex opening;
    static int file = -1;
    const std::lock_guard guard(opening);
    struct stat facts{};
    // Where someone deleted the cache directory, a new file must be locked, or other processes would not notice.
    const bool usable = file >= 0 && ::fstat(file, &facts) == 0 && facts.st_nlink > 0;
    if (!usable && make_directories(root_).empty() && open_root(root_))
        // For this user only: who can read it could lock it, and let us wait.
        file = ::open((root_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    return file;
}

DiskCache::Lock::Lock(DiskCache& cache, const CacheEntry& entry) {
    if (cache.root_.empty()) return;
    const int file = cache.lock_file();
    // Without a lock (read-only directory, file system that has none) a kernel may be compiled twice, and no harm done.
    if (file < 0) return;
    offset_ = std::stol(entry.key.substr(0, 15), nullptr, 16);
    // Asking again and again instead of waiting in the kernel: it would take two threads of two processes that wait for
    // each other's different keys for a deadlock, and a holder that is stopped would stop us as well.
    constexpr auto kNotice = std::chrono::seconds(10);
    constexpr auto kPatience = std::chrono::seconds(120);
    const auto start = std::chrono::steady_clock::now();
    auto pause = std::chrono::milliseconds(1);
    bool noticed = false;
    for (;;) {
        struct flock lock{};
        lock.l_type = F_WRLCK;
        lock.l_whence = SEEK_SET;
        lock.l_start = offset_;
        lock.l_len = 1;
        if (::fcntl(file, F_SETLK, &lock) == 0) {
            file_ = file;
            return;
        }
        if (errno != EACCES && errno != EAGAIN && errno != EINTR) return;
        check_interrupt_now_and_then();
        const auto waited = std::chrono::steady_clock::now() - start;
        if (waited > kNotice && !noticed) {
            ::fcntl(file, F_GETLK, &lock);
            report(concat("waiting for process ", lock.l_pid, ", which compiles ", entry.name));
            noticed = true;
        }
        if (waited > kPatience) {
            report(concat("waited long enough for another process to compile ", entry.name, "; compiling it here"));
            return;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::milliseconds(20));
    }
}

DiskCache::Lock::~Lock() {
    if (file_ < 0) return;
    struct flock lock{};
    lock.l_type = F_UNLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = offset_;
    lock.l_len = 1;
    ::fcntl(file_, F_SETLK, &lock);
}

}  // namespace deep_gemm::jit
