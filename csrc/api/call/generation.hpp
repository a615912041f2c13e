// The age of what was remembered of calls.
#pragma once

#include <atomic>
#include <cstdint>

namespace deep_gemm {

/// Counts the changes of everything that decides a call beside its arguments: settings, the alignment of groups, forced
/// configs, the simulator's options. What was made under another generation is not used again.
///
/// Whoever changes something advances *after* the change; whoever remembers asks for the generation *before* reading.
/// What was read half way through a change is then remembered under a generation that has passed.
class Generation {
public:
    static constexpr uint64_t kNone = 0;  // no generation: what carries it is never used

    static uint64_t now() { return count_.load(std::memory_order_acquire); }
    static void advance() { count_.fetch_add(1, std::memory_order_release); }

private:
    inline static std::atomic<uint64_t> count_ = kNone + 1;
};

}  // namespace deep_gemm
