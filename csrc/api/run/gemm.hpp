// The journey of a call from its beginning; gemm.cpp goes on where it is not known yet.
#pragma once

#include <utility>

#include "../call/call.hpp"
#include "../call/call_cache.hpp"

namespace deep_gemm {

struct KGroupedCall;

/// Checks row counts, selects, copies, tunes, launches. `generation` is of before anything was read that it counts.
/// Without a key the call is not remembered. Returns what `run_gemm` does.
bool run_checked_gemm(GemmCall&& call, const CallKey* key, uint64_t generation);

/// `check` makes the call that `key` stands for, or throws. Returns false where the product is empty (K = 0, or nothing
/// but padding for want of experts), so that D is C or zero: the caller writes it. So it does where K is too long for
/// exact sums, and the caller splits it.
template <typename Check>
bool run_gemm(const CallKey& key, Check&& check) {
    const uint64_t generation = Generation::now();
    if (const CachedCall* known = CallCache::of_thread().find(key, generation)) {
        known->launch();
        return true;
    }
    begin_cold_call();
    return run_checked_gemm(check(), &key, generation);
}

/// Such calls are not remembered. Returns false where no group has any K, so that D is C or zero: the caller writes it.
bool run_k_grouped(KGroupedCall&& k);

}  // namespace deep_gemm
