// Running another program and collecting what it prints.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "require.hpp"

extern char** environ;

namespace deep_gemm {

struct ProcessResult {
    bool succeeded = false;
    std::string ending;  // "exited with status 2", "was killed by signal 9 (Killed)": for messages
    std::string output;  // standard output and standard error, as they came
};

/// How a command would be typed.
inline std::string command_line(const std::vector<std::string>& arguments) {
    std::string line;
    for (const std::string& argument : arguments) {
        const bool plain = argument.find_first_of(" \t\"'$&|;<>()*?") == std::string::npos;
        line += (line.empty() ? "" : " ") + (plain ? argument : "'" + argument + "'");
    }
    return line;
}

/// Runs a program to its end. A program that cannot be started is a result too, never an exception.
inline ProcessResult run_process(const std::vector<std::string>& arguments) {
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
    pid_t child = 0;
    const int refused = ::posix_spawnp(&child, pointers[0], &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    ProcessResult result;
    if (refused != 0) {
        ::close(ends[0]);
        result.ending = concat("could not be started: ", std::strerror(refused));
        return result;
    }
    char buffer[4096];
    for (;;) {
        const ssize_t got = ::read(ends[0], buffer, sizeof(buffer));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        result.output.append(buffer, static_cast<size_t>(got));
    }
    ::close(ends[0]);
    int status = 0;
    pid_t waited = 0;
    while ((waited = ::waitpid(child, &status, 0)) < 0 && errno == EINTR) {
    }
    if (waited < 0) {
        // The host program ignores SIGCHLD, so the kernel kept no status: its output has to tell.
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
