// Directories that only this process's user and root can change: what is loaded from elsewhere could be anybody's code.
//
// Everything is opened first and looked at then, one step below the other, so that nothing can be exchanged in between.
// The directories above the first one are not looked at: who may rename them can take it away, and cannot put another
// one in its place that passes.
#pragma once

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

/// Opens what nobody else can have written: `name` in the directory `parent`, or where that is none, the path `name`.
/// `kind` is O_DIRECTORY, or 0 for a file.
Opened open_private(const Descriptor& parent, const std::string& name, const std::string& path, int kind,
                    Sticky sticky = Sticky::refused);

/// The directory of the whole cache.
Opened open_root(const std::string& root);

/// The directory `name` of the cache at `root`, or why it must not be read from.
Opened open_folder(const std::string& root, const std::string& name);

/// Makes the directory `name` of the cache at `root` where it is missing. Returns why nothing may be kept there, or an
/// empty string.
std::string make_folder(const std::string& root, const std::string& name);

}  // namespace deep_gemm::jit
