#include "files.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "require.hpp"

namespace deep_gemm {

std::optional<std::string> read_file(const Descriptor& file) {
    struct stat facts{};
    if (!file || ::fstat(file.number(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
    std::string text;
    if (facts.st_size > 0) text.reserve(static_cast<size_t>(facts.st_size));
    char buffer[65536];
    ssize_t got = 0;
    while ((got = ::read(file.number(), buffer, sizeof(buffer))) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return std::nullopt;
        text.append(buffer, static_cast<size_t>(got));
    }
    return text;
}

std::optional<std::string> read_file(const std::string& path) {
    return read_file(Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)));
}

std::string write_file(const std::string& path, std::string_view bytes) {
    ::unlink(path.c_str());  // a link that somebody put there is not followed
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode);
    if (file < 0) return concat("cannot create ", path, ": ", std::strerror(errno));
    std::string problem;
    while (!bytes.empty() && problem.empty()) {
        const ssize_t put = ::write(file, bytes.data(), bytes.size());
        if (put >= 0)
            bytes.remove_prefix(static_cast<size_t>(put));
        else if (errno != EINTR)
            problem = concat("cannot write ", path, ": ", std::strerror(errno));
    }
    // Network file systems report a full disk only here.
    if (::close(file) != 0 && problem.empty()) problem = concat("cannot write ", path, ": ", std::strerror(errno));
    return problem;
}

std::string make_directories(const std::string& path) {
    if (::mkdir(path.c_str(), kDirectoryMode) == 0) return {};
    int reason = errno;
    const size_t slash = path.find_last_not_of('/') == std::string::npos ? 0 : path.rfind('/');
    if (reason == ENOENT && slash != std::string::npos && slash > 0) {
        if (std::string problem = make_directories(path.substr(0, slash)); !problem.empty()) return problem;
        if (::mkdir(path.c_str(), kDirectoryMode) == 0) return {};
        reason = errno;
    }
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) return {};
    return concat("cannot create ", path, ": ", std::strerror(reason));
}

void remove_quietly(const std::string& path) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
}

std::vector<std::string> paths_in(const std::string& directory) {
    std::vector<std::string> paths;
    std::error_code error;
    std::filesystem::directory_iterator at(directory, error);
    for (; !error && at != std::filesystem::directory_iterator(); at.increment(error))
        paths.push_back(at->path().string());
    return paths;
}

void remove_leftovers(const std::string& directory, std::string_view beginning) {
    constexpr time_t kHour = 60 * 60;
    for (const std::string& path : paths_in(directory)) {
        struct stat facts{};
        if (std::string_view(path).substr(path.rfind('/') + 1).starts_with(beginning) &&
            ::lstat(path.c_str(), &facts) == 0 && facts.st_uid == ::geteuid() &&
            facts.st_mtime < std::time(nullptr) - kHour)
            remove_quietly(path);
    }
}

bool is_file(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace deep_gemm
