#include "cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <thread>

#include "../util/files.hpp"
#include "../util/flat_json.hpp"
#include "../util/hash.hpp"
#include "settings.hpp"

namespace deep_gemm::jit {
namespace {

constexpr const char* kFormat = "deep_gemm cache 2";
constexpr const char* kFacts = "/kernel.json";

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
    using flat_json::text;
    return concat("{\n", text("format", kFormat), text("key", entry.key), text("name", entry.name),
                  text("target", entry.target), text("output", entry.output == Output::cubin ? "cubin" : "ptx"),
                  text("compiler", compiler_identity()), text("options", options.substr(1)), text("created", time),
                  text("wgmma_waits", compiled.resources.wgmma_waits), text("image_sha256", sha256(compiled.image)),
                  "  \"image_bytes\": ", compiled.image.size(), ",\n  \"compile_seconds\": ", seconds,
                  ",\n  \"registers\": ", compiled.resources.registers,
                  ",\n  \"stack_bytes\": ", compiled.resources.stack_bytes,
                  ",\n  \"spill_bytes\": ", compiled.resources.spill_bytes, "\n}\n");
}

void report(const std::string& text) { std::fprintf(stderr, "deep_gemm: %s\n", text.c_str()); }

/// Directories that killed processes left half-written. A compilation takes seconds, so an hour is long ago.
void remove_leftovers(const std::string& directory) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(directory, ignored)) {
        const auto age = fs::file_time_type::clock::now() - entry.last_write_time(ignored);
        if (age > std::chrono::hours(1)) remove_quietly(entry.path().string());
    }
}

}  // namespace

std::string cache_key(const KernelSource& source, const std::string& target, Output output) {
    Sha256 digest;
    digest.field(kFormat).field(source.name).field(source.text).field(headers_digest());
    digest.field(compiler_identity()).field(target).field(output == Output::cubin ? "cubin" : "ptx");
    for (const std::string& option : compile_options(target, output)) digest.field(option);
    return digest.hex().substr(0, 32);
}

DiskCache& DiskCache::get() {
    static auto& kCache = *new DiskCache;  // never destroyed: threads may compile while the process ends
    return kCache;
}

DiskCache::DiskCache() : root_(settings().cache_dir) {
    if (root_.empty()) warn_once("there is no cache directory (HOME and DG_JIT_CACHE_DIR are not set)");
}

std::string DiskCache::directory_of(const CacheEntry& entry) const {
    return root_.empty() ? "" : root_ + "/cache/" + entry.name + "." + entry.key;
}

std::optional<CachedImage> DiskCache::find(const CacheEntry& entry, bool locked) {
    if (root_.empty()) return std::nullopt;
    const std::string directory = directory_of(entry);
    const auto facts = read_file(directory + kFacts);
    auto image = read_file(directory + image_file(entry.output));
    if (!facts && !image && !std::filesystem::exists(directory)) return std::nullopt;
    const char* problem = nullptr;
    if (!facts)
        problem = "its kernel.json is missing";
    else if (flat_json::field(*facts, "format") != kFormat || flat_json::field(*facts, "key") != entry.key)
        problem = "its kernel.json belongs to something else";
    else if (!image)
        problem = "its image is missing";
    else if (flat_json::field(*facts, "image_bytes") != std::to_string(image->size()))
        problem = "its image has another size than when it was written";
    else if (flat_json::field(*facts, "image_sha256") != sha256(*image))
        problem = "its image is not what was written";
    if (problem != nullptr) {
        if (locked) report(concat("damaged cache entry ", directory, ": ", problem, "; compiling it again"));
        return std::nullopt;
    }
    if (settings().dump_ptx && entry.output == Output::cubin && !is_file(directory + "/kernel.ptx"))
        return std::nullopt;
    const auto number = [&facts](const char* name) { return std::atoi(flat_json::field(*facts, name).c_str()); };
    return CachedImage{
        std::move(*image),
        {number("registers"), number("stack_bytes"), number("spill_bytes"), flat_json::field(*facts, "wgmma_waits")}};
}

bool DiskCache::store(const CacheEntry& entry, const std::string& text, const Compiled& compiled,
                      double compile_seconds) {
    if (root_.empty()) return false;
    static std::atomic<int> counter{0};
    const std::string drafts = root_ + "/drafts";
    const std::string draft = concat(drafts, "/", entry.key, ".", ::getpid(), ".", counter++);
    const std::string final_directory = directory_of(entry);
    std::string problem = make_directories(draft);
    const auto put = [&](const std::string& name, const std::string& bytes) {
        if (problem.empty()) problem = write_file(draft + name, bytes);
    };
    put("/kernel.cu", text);
    put(image_file(entry.output), compiled.image);
    if (settings().dump_ptx && entry.output == Output::cubin) put("/kernel.ptx", compiled.ptx);
    put(kFacts, facts_json(entry, compiled, compile_seconds));
    if (problem.empty()) problem = make_directories(root_ + "/cache");
    if (problem.empty() && std::rename(draft.c_str(), final_directory.c_str()) != 0) {
        // A directory that is not empty stands there: a damaged entry. Put it out of the way; we hold its lock.
        const std::string damaged = draft + ".damaged";
        std::rename(final_directory.c_str(), damaged.c_str());
        if (std::rename(draft.c_str(), final_directory.c_str()) != 0)
            problem = concat("cannot rename ", draft, " to ", final_directory, ": ", std::strerror(errno));
        remove_quietly(damaged);
    }
    if (problem.empty()) {
        remove_leftovers(drafts);
        return true;
    }
    remove_quietly(draft);
    warn_once(problem);
    return false;
}

void DiskCache::warn_once(const std::string& problem) {
    static std::once_flag warned;
    std::call_once(warned, [&] {
        report(concat("compiled kernels are kept in memory only: ", problem,
                      ". Set DG_JIT_CACHE_DIR to a directory that can be written."));
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
    if (!usable && make_directories(root_).empty())
        file = ::open((root_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
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
