// The cache of compiled kernels on disk.
//
// One directory for each kernel, `<cache_dir>/kernels/<name>.<key>/`, with the source, the image and `kernel.json`. It
// appears by one rename, so a reader sees all of it or nothing; a digest in kernel.json tells damage and foreign files
// apart from good ones. Nothing in it depends on where it lies: it may be copied to another machine. What others than
// this user and root could have written is not loaded (private_folder.hpp).
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "cache_entry.hpp"

namespace deep_gemm::jit {

struct CachedImage {
    std::string image;
    ResourceUse resources;
};

class DiskCache {
public:
    /// The cache of this process's settings.
    static DiskCache& get();

    /// The kernel, if it is there and intact. A damaged or foreign entry counts as missing, and is reported where the
    /// caller holds the entry's lock: without it, the entry may just be in the middle of being replaced.
    std::optional<CachedImage> find(const CacheEntry& entry, bool locked);

    /// Keeps a kernel. If that is impossible (disk full, read-only), says so once on stderr and returns false.
    bool store(const CacheEntry& entry, const std::string& text, const Compiled& compiled, double compile_seconds);

    /// Removes entries, those unused for longest first, until the others take no more than so many bytes. The one at
    /// `kept` stays. Returns how many went.
    int64_t prune(uint64_t max_bytes, const std::string& kept = "");

    /// Why an entry, named as its directory is, would not be loaded; empty where it would.
    std::string problem_of(const std::string& directory_name) const;

    /// Where an entry lies, whether it exists or not.
    std::string directory_of(const CacheEntry& entry) const;

    /// While one of these lives, no other process compiles the same key. It ends with the process however that ends.
    /// Within a process the caller sees to it that one thread at a time asks for a key.
    class Lock {
    public:
        Lock(DiskCache& cache, const CacheEntry& entry);
        ~Lock();
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;

    private:
        int file_ = -1;
        long offset_ = 0;
    };

private:
    DiskCache();
    std::optional<CachedImage> find_in(const std::string& root, const CacheEntry& entry, bool locked) const;
    void keep_within_limit(const std::string& stored);
    int lock_file();
    void warn_once(const std::string& problem);

    std::string root_;  // empty: no disk cache
    std::mutex measuring_;
    uint64_t known_bytes_ = 0;  // of all entries, when they were last measured, and what this process has added since
};

}  // namespace deep_gemm::jit
