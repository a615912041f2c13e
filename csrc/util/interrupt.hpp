// Ctrl-C in waits and long computations. Python only notes a signal; what it stands for happens when Python is asked.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

namespace deep_gemm {

/// Thrown out of what was interrupted. No std::exception, so that nobody takes it for a failure and goes on.
struct Interrupted {
    bool python_raised;  // Python's exception is set in this thread
};

/// How long an interrupted wait may go on.
inline constexpr auto kInterruptPause = std::chrono::milliseconds(50);

/// Throws Interrupted where a signal's handler raises (in Python's main thread), and in threads that were stopped.
/// Does nothing in a process without Python. It takes the GIL, which the caller need not hold.
void check_interrupt();

/// The same, but mostly only a look at the clock: for loops.
void check_interrupt_now_and_then();

/// Let check_interrupt throw in other threads, by their Linux ids, until they are let go on: for whoever waits for
/// them.
void stop_threads(const std::vector<int64_t>& ids);
void let_threads_go(const std::vector<int64_t>& ids);

/// Waits for a mutex until check_interrupt throws.
inline std::unique_lock<std::timed_mutex> lock_interruptibly(std::timed_mutex& mutex) {
    std::unique_lock lock(mutex, std::try_to_lock);
    while (!lock && !lock.try_lock_for(kInterruptPause)) check_interrupt();
    return lock;
}

}  // namespace deep_gemm
