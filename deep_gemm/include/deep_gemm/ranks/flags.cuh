// How ranks wait for each other.
//
// Each rank counts its calls; in a call it tells all others when its tokens are there, and when it has sent its
// results. So its tokens may be overwritten when everybody's results have come, and its results when it has asked for
// others.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/system.cuh>
#include <deep_gemm/ranks/config.cuh>

namespace deep_gemm {

/// In the memory of rank `in`: what rank `by` says.
DG_DEVICE uint64_t* flag_of(const Ranks& ranks, int32_t in, Phase phase, int32_t by) {
    return reinterpret_cast<uint64_t*>(ranks.parts[in]) + static_cast<int32_t>(phase) * kMaxRanks + by;
}

/// The number of this call, before `count_call` and behind it.
DG_DEVICE uint32_t call_now(const Ranks& ranks, bool counted) {
    return *static_cast<volatile uint32_t*>(ranks.calls) + (counted ? 0 : 1);
}

/// One thread, in a launch that does not ask: those that come behind it are told the number as it is from now on.
DG_DEVICE void count_call(const Ranks& ranks) { *ranks.calls = call_now(ranks, false); }

/// By all threads of a block, of which there are as many as ranks: what earlier launches have written here, or sent to
/// others, is there for whoever sees the flag.
DG_DEVICE void tell_all(const Ranks& ranks, Phase phase, uint32_t call, int32_t tokens) {
    const auto to = static_cast<int32_t>(threadIdx.x);
    if (to < ranks.count)
        ptx::store_release_system(flag_of(ranks, to, phase, ranks.rank),
                                  static_cast<uint64_t>(call) << 32 | static_cast<uint32_t>(tokens));
}

/// Says what is wrong and ends the launch.
DG_DEVICE void fail(const Ranks& ranks, Phase phase, int32_t other, uint32_t call, int32_t tokens, int32_t room) {
    auto* const fault = reinterpret_cast<volatile uint32_t*>(ranks.parts[ranks.rank] + kFlagBytes);
    fault[1] = static_cast<uint32_t>(other), fault[2] = call, fault[0] = static_cast<uint32_t>(phase) + 1;
    const char* const of = phase == Phase::tokens ? "tokens" : "results";
    if (tokens > room)
        printf(
            "deep_gemm: fp8_mega_moe call %u: rank %d has %d tokens, but rank %d has room for %d of each: "
            "num_tokens_bound must be at least the tokens of every rank\n",
            call, other, tokens, ranks.rank, room);
    else
        printf("deep_gemm: fp8_mega_moe call %u: rank %d waited for %s of rank %d for longer than %g s\n", call,
               ranks.rank, of, other, static_cast<double>(ranks.timeout_ns) * 1e-9);
    ptx::trap();
}

/// Until a rank has said that it is there in this call; how many tokens it has. By one thread. Of blocks that wait for
/// the same the `first` one says whom it waited for in vain, before others end the launch.
DG_DEVICE int32_t wait_for(const Ranks& ranks, Phase phase, int32_t other, uint32_t call, bool first) {
    constexpr uint64_t kToSaySoNs = 2'000'000'000;
    const uint64_t timeout_ns = ranks.timeout_ns + (first ? 0 : kToSaySoNs);
    const uint64_t* const flag = flag_of(ranks, ranks.rank, phase, other);
    const uint64_t begin = ptx::nanoseconds_now();
    uint64_t said = ptx::load_acquire_system(flag);
    while (static_cast<int32_t>(static_cast<uint32_t>(said >> 32) - call) < 0) {
        if (ptx::nanoseconds_now() - begin > timeout_ns) fail(ranks, phase, other, call, 0, 0);
        ptx::sleep_nanoseconds(40);
        said = ptx::load_acquire_system(flag);
    }
    return static_cast<int32_t>(static_cast<uint32_t>(said));
}

}  // namespace deep_gemm
