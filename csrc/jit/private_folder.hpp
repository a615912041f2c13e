// Directories that only this process's user and root can change: what is loaded from elsewhere could be anybody's code.
//
// Everything is opened first and looked at then, one step below the other, so that nothing can be exchanged in between.
// The directories above the first one are not looked at: who may rename them can take it away, and cannot put another
// one in its place that passes.
#pragma once

#include <sys/stat.h>

#include <string>

#include "../util/files.hpp"

namespace deep_gemm::jit {

/// What came of opening something.
struct Opened {
    Descriptor file = Descriptor();
    std::string problem = "";  // why it was not opened; empty where it is simply not there
    bool untrusted = false;    // the problem is that others could have written it

    explicit operator bool() const { return static_cast<bool>(file); }
};

/// Whether a directory may be one like /tmp, whose sticky bit keeps others from what is ours in it. What they put there
/// is theirs, and is found to be.
enum class Sticky { refused, serves };

/// Who besides this user and root can change an opened file or directory: a sentence, empty where nobody can.
inline std::string who_else_writes(const Descriptor& file, const std::string& path, Sticky sticky) {
    struct stat facts{};
    if (::fstat(file.number(), &facts) != 0) return concat("cannot look at ", path, ": ", std::strerror(errno));
    const uid_t user = ::geteuid();
    if (facts.st_uid != user && facts.st_uid != 0)
        return concat(path, " belongs to user ", facts.st_uid, ", neither to user ", user,
                      ", who runs this process, nor to root");
    if (sticky == Sticky::serves && (facts.st_mode & S_ISVTX) != 0) return {};
    if ((facts.st_mode & S_IWOTH) != 0) return concat("every user may write ", path);
    // A user's private group has the user's number, and with the umask that goes with it (002) may write everything.
    if ((facts.st_mode & S_IWGRP) != 0 && facts.st_gid != facts.st_uid)
        return concat("group ", facts.st_gid, " may write ", path);
    return {};
}

/// Opens what nobody else can have written: `name` in the directory `parent`, or where that is none, the path `name`.
/// `kind` is O_DIRECTORY, or 0 for a file.
inline Opened open_private(const Descriptor& parent, const std::string& name, const std::string& path, int kind,
                           Sticky sticky = Sticky::refused) {
    Opened opened;
    const int flags = kind | O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    opened.file = Descriptor(::openat(parent ? parent.number() : AT_FDCWD, name.c_str(), flags));
    if (!opened.file) {
        if (errno != ENOENT) opened.problem = concat("cannot open ", path, ": ", std::strerror(errno));
        return opened;
    }
    opened.problem = who_else_writes(opened.file, path, sticky);
    if (opened.problem.empty()) return opened;
    opened.untrusted = true;
    opened.file = Descriptor();
    return opened;
}

/// The directory of the whole cache.
inline Opened open_root(const std::string& root) {
    return open_private(Descriptor(), root, root, O_DIRECTORY, Sticky::serves);
}

/// The directory `name` of the cache at `root`, or why it must not be read from.
inline Opened open_folder(const std::string& root, const std::string& name) {
    const Opened above = open_root(root);
    if (!above) return {.problem = above.problem, .untrusted = above.untrusted};
    return open_private(above.file, name, root + "/" + name, O_DIRECTORY);
}

/// Makes the directory `name` of the cache at `root` where it is missing. Returns why nothing may be kept there, or an
/// empty string.
inline std::string make_folder(const std::string& root, const std::string& name) {
    // The root first: nothing is made inside one that others can write.
    if (std::string problem = make_directories(root); !problem.empty()) return problem;
    if (const Opened above = open_root(root); !above) return above.problem;
    if (std::string problem = make_directories(root + "/" + name); !problem.empty()) return problem;
    return open_folder(root, name).problem;
}

}  // namespace deep_gemm::jit
