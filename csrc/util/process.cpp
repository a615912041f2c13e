#include "process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "files.hpp"
#include "interrupt.hpp"
#include "require.hpp"

extern char** environ;

namespace deep_gemm {
namespace {

/// Waits for the end of a child; false where the kernel kept no status, as the host program ignores SIGCHLD.
bool reap(pid_t child, int& status) {
    pid_t waited = 0;
    while ((waited = ::waitpid(child, &status, 0)) < 0 && errno == EINTR) {
    }
    return waited >= 0;
}

/// What a child prints until it closes its end. Interrupted, the child is killed with all that it started.
std::string read_to_the_end(int end, pid_t child) {
    std::string output;
    char buffer[4096];
    for (;;) {
        try {
            check_interrupt_now_and_then();
        } catch (const Interrupted&) {
            int ignored = 0;
            ::kill(-child, SIGKILL);
            reap(child, ignored);
            throw;
        }
        pollfd waiting{end, POLLIN, 0};
        if (::poll(&waiting, 1, static_cast<int>(kInterruptPause.count())) <= 0) continue;
        const ssize_t got = ::read(end, buffer, sizeof(buffer));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return output;
        output.append(buffer, static_cast<size_t>(got));
    }
}

}  // namespace

std::string command_line(const std::vector<std::string>& arguments) {
    std::string line;
    for (const std::string& argument : arguments) {
        const bool plain = argument.find_first_of(" \t\"'$&|;<>()*?") == std::string::npos;
        line += (line.empty() ? "" : " ") + (plain ? argument : "'" + argument + "'");
    }
    return line;
}

ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& tmpdir) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return {false, concat("could not be started: ", std::strerror(errno)), ""};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    std::vector<char*> pointers;
    for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    std::string tmpdir_variable = "TMPDIR=" + tmpdir;
    std::vector<char*> variables;
    for (char** variable = environ; *variable != nullptr; ++variable)
        if (tmpdir.empty() || !std::string_view(*variable).starts_with("TMPDIR=")) variables.push_back(*variable);
    if (!tmpdir.empty()) variables.push_back(tmpdir_variable.data());
    variables.push_back(nullptr);
    pid_t child = 0;
    // A process group of its own: nvcc starts others, which have to end with it.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const int refused = ::posix_spawnp(&child, pointers[0], &actions, &attributes, pointers.data(), variables.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    const Descriptor end(ends[0]);
    ::close(ends[1]);
    ProcessResult result;
    if (refused != 0) {
        result.ending = concat("could not be started: ", std::strerror(refused));
        return result;
    }
    result.output = read_to_the_end(end.number(), child);
    int status = 0;
    if (!reap(child, status)) {
        // Its output has to tell.
        result.succeeded = true;
        result.ending = "ended, its status unknown";
    } else if (WIFSIGNALED(status)) {
        result.ending = concat("was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
    } else {
        result.succeeded = WEXITSTATUS(status) == 0;
        result.ending = concat("exited with status ", WEXITSTATUS(status));
    }
    return result;
}

}  // namespace deep_gemm
