#include "private_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "../util/require.hpp"

namespace deep_gemm::jit {
namespace {

/// Who besides this user and root can change an opened file or directory: a sentence, empty where nobody can.
std::string who_else_writes(const Descriptor& file, const std::string& path, Sticky sticky) {
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

}  // namespace

Opened open_private(const Descriptor& parent, const std::string& name, const std::string& path, int kind,
                    Sticky sticky) {
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

Opened open_root(const std::string& root) {
    return open_private(Descriptor(), root, root, O_DIRECTORY, Sticky::serves);
}

Opened open_folder(const std::string& root, const std::string& name) {
    const Opened above = open_root(root);
    if (!above) return {.problem = above.problem, .untrusted = above.untrusted};
    return open_private(above.file, name, root + "/" + name, O_DIRECTORY);
}

std::string make_folder(const std::string& root, const std::string& name) {
    // The root first: nothing is made inside one that others can write.
    if (std::string problem = make_directories(root); !problem.empty()) return problem;
    if (const Opened above = open_root(root); !above) return above.problem;
    if (std::string problem = make_directories(root + "/" + name); !problem.empty()) return problem;
    return open_folder(root, name).problem;
}

}  // namespace deep_gemm::jit
