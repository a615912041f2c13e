// Small file helpers. Those that may fail for the machine's reasons (disk full, no permission) say so in their result,
// and none of them waits: a FIFO or a device where a file should be is no file.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deep_gemm {

// Whatever the umask: what is made here may become code of this process, so nobody else gets to write it.
inline constexpr mode_t kFileMode = 0644, kDirectoryMode = 0755;

/// An open file or directory, or none.
class Descriptor {
public:
    explicit Descriptor(int number = -1) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor() {
        if (number_ >= 0) ::close(number_);
    }
    explicit operator bool() const { return number_ >= 0; }
    int number() const { return number_; }

private:
    int number_;
};

/// All bytes of an open regular file, or nothing if it is something else or cannot be read.
std::optional<std::string> read_file(const Descriptor& file);

/// The whole file, or nothing if it cannot be read.
std::optional<std::string> read_file(const std::string& path);

/// Writes a new file, in the place of an old one. Returns why it could not, or an empty string.
std::string write_file(const std::string& path, std::string_view bytes);

/// Creates a directory and its parents. Returns why it could not, or an empty string.
std::string make_directories(const std::string& path);

/// Removes a file or a whole directory; whatever cannot be removed stays.
void remove_quietly(const std::string& path);

/// What a directory holds; what cannot be read is left out.
std::vector<std::string> paths_in(const std::string& directory);

/// Removes what killed processes of this user left half-written, by the beginning of its name. A compilation takes
/// seconds, so an hour is long ago.
void remove_leftovers(const std::string& directory, std::string_view beginning);

bool is_file(const std::string& path);

}  // namespace deep_gemm
