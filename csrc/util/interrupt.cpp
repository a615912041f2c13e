#include "interrupt.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <set>

#include "python.hpp"

namespace deep_gemm {
namespace {

struct Stopped {
    std::atomic<bool> any{false};
    std::mutex mutex;
    std::multiset<int64_t> ids;
};

// Never destroyed: threads may outlive main.
Stopped& stopped() {
    static auto& kStopped = *new Stopped;
    return kStopped;
}

bool was_stopped(int64_t id) {
    if (!stopped().any.load(std::memory_order_relaxed)) return false;
    const std::lock_guard guard(stopped().mutex);
    return stopped().ids.contains(id);
}

bool has_python() { return PyErr_CheckSignals != nullptr && Py_IsInitialized() != 0; }

}  // namespace

void check_interrupt() {
    const int64_t thread = ::syscall(SYS_gettid);  // glibc has gettid() from 2.30 on, wheels run from 2.28 on
    if (was_stopped(thread)) throw Interrupted{false};
    // Handlers run in the main thread only, and no other thread needs to wait for the GIL here.
    if (thread != ::getpid() || !has_python()) return;
    const int state = PyGILState_Ensure();
    const bool raised = PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    if (raised) throw Interrupted{true};
}

void check_interrupt_now_and_then() {
    using Clock = std::chrono::steady_clock;
    static thread_local Clock::time_point next{};
    const Clock::time_point now = Clock::now();
    if (now < next) return;
    next = now + kInterruptPause;
    check_interrupt();
}

void stop_threads(const std::vector<int64_t>& ids) {
    const std::lock_guard guard(stopped().mutex);
    stopped().ids.insert(ids.begin(), ids.end());
    stopped().any = !stopped().ids.empty();
}

void let_threads_go(const std::vector<int64_t>& ids) {
    const std::lock_guard guard(stopped().mutex);
    for (const int64_t id : ids)
        if (const auto found = stopped().ids.find(id); found != stopped().ids.end()) stopped().ids.erase(found);
    stopped().any = !stopped().ids.empty();
}

}  // namespace deep_gemm
