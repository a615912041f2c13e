// The journey of a call from its beginning; gemm.cpp goes on where it is not known yet.
#pragma once

#include "../call/call.hpp"
#include "../call/call_cache.hpp"

namespace deep_gemm {

struct KGroupedCall;

/// Checks row counts, selects, copies, tunes, launches; remembers the call by its key, if it has one, where it can come
/// again as it is. `generation` is of before anything was read that it counts. Returns false where the product is empty
/// (K = 0, or nothing but padding for want of experts), so that D is C or zero: the caller writes it. So it does where
/// K is too long for exact sums, and the caller splits it.
bool run_checked_gemm(GemmCall&& call, const CallKey* key, uint64_t generation);

/// Such calls are not remembered. Returns false where no group has any K, so that D is C or zero: the caller writes it.
bool run_k_grouped(KGroupedCall&& k);

}  // namespace deep_gemm
