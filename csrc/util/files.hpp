// Small file helpers. Those that may fail for the machine's reasons (disk full, no permission) say so in their result.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "require.hpp"

namespace deep_gemm {

/// The whole file, or nothing if it cannot be read.
inline std::optional<std::string> read_file(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return std::nullopt;
    std::string text;
    struct stat facts{};
    if (::fstat(file, &facts) == 0 && facts.st_size > 0) text.reserve(static_cast<size_t>(facts.st_size));
    char buffer[65536];
    ssize_t got = 0;
    while ((got = ::read(file, buffer, sizeof(buffer))) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        text.append(buffer, static_cast<size_t>(got));
    }
    ::close(file);
    if (got < 0) return std::nullopt;
    return text;
}

/// Writes a new file. Returns why it could not, or an empty string.
inline std::string write_file(const std::string& path, std::string_view bytes) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
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

/// Creates a directory and its parents. Returns why it could not, or an empty string.
inline std::string make_directories(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error && !std::filesystem::is_directory(path)) return concat("cannot create ", path, ": ", error.message());
    return {};
}

/// Removes a file or a whole directory; whatever cannot be removed stays.
inline void remove_quietly(const std::string& path) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
}

inline bool is_file(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace deep_gemm
