// fence, membar: what each kind makes visible to whom.
#include "../core/execute.hpp"
#include "arena.hpp"
#include "memory.hpp"

namespace deep_gemm::simulator {

namespace {

// Flags: what a fence orders.
enum : uint32_t { kProxyAsync = 1, kInits = 2, kMemory = 4, kSequential = 8, kSharedOnly = 16 };
constexpr int kScopeShift = 8;
Step fence(Warp& w, const Instruction& in, uint32_t lanes) {
    if (in.flags & kProxyAsync) fence_for_async(w, lanes);
    if (Devices* devices = w.cluster->launch->devices; devices && in.flags & kProxyAsync && !(in.flags & kSharedOnly))
        devices->arena->fence_for_copies(w, lanes);
    if (in.flags & (kProxyAsync | kInits))
        for (const auto& cta : w.cluster->ctas)
            for (const auto& barrier : cta->mbarriers)
                if (barrier->init_warp == &w) barrier->init_fenced = true;
    if (in.flags & kInits) {
        release(w, lanes, w.inits);
        tick(w);
    }
    if (in.flags & kMemory) {
        learn(w, lanes, w.cluster->sync_clock);
        release_near(w, lanes);
        release(w, lanes, w.released_by_fences), w.fencing_lanes |= lanes;
        if (Devices* devices = w.cluster->launch->devices)
            devices->arena->fence(w, lanes, Scope(in.flags >> kScopeShift & 3), in.flags & kSequential);
        tick(w);
    }
    return Step::next;
}

void decode_fence(Decoder& decoder) {
    uint32_t flags = 0;
    const bool tensormap = decoder.mod("proxy") && (decoder.mod("tensormap::generic"));
    if (tensormap) {
        if (decoder.count() > 0) {
            int64_t displacement;
            decoder.address(decoder.node(0), displacement);
            decoder.constant(1);
        }
    } else if (!decoder.one_of({"async", "async::generic", "alias"}).empty()) {
        flags |= kProxyAsync;
        const auto space = decoder.one_of({"global", "shared::cta", "shared::cluster"});
        if (!space.empty() && space != "global") flags |= kSharedOnly;
    } else if (decoder.mod("mbarrier_init")) {
        flags |= kInits;
    } else {
        flags |= kMemory;
        if (decoder.mod("sc")) flags |= kSequential;
    }
    decoder.ignore({"acq_rel", "release", "acquire", "sync_restrict::shared::cta", "sync_restrict::shared::cluster"});
    decoder.out.flags = flags | uint32_t(take_scope(decoder, Scope::sys)) << kScopeShift;
    decoder.set(fence);
}

void decode_membar(Decoder& decoder) {
    decoder.out.flags = kMemory | kSequential | uint32_t(take_scope(decoder, Scope::sys)) << kScopeShift;
    decoder.set(fence);
}

}  // namespace

void add_fence(DecodeTable& table) {
    table["fence"] = decode_fence;
    table["membar"] = decode_membar;
}

}  // namespace deep_gemm::simulator
