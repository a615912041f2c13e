// One process compiles a key, while others wait for it.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>

#include "../util/files.hpp"
#include "../util/interrupt.hpp"
#include "cache.hpp"
#include "private_folder.hpp"

namespace deep_gemm::jit {

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
            std::fprintf(stderr, "deep_gemm: waiting for process %ld, which compiles %s\n", long{lock.l_pid},
                         entry.name.c_str());
            noticed = true;
        }
        if (waited > kPatience) {
            std::fprintf(stderr, "deep_gemm: waited long enough for another process to compile %s; compiling it here\n",
                         entry.name.c_str());
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
