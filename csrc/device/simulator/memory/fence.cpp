// fence, membar: what each kind makes visible to whom.
#include <algorithm>

#include "../core/execute.hpp"
#include "memory.hpp"

namespace deep_gemm::simulator {

namespace {

// Flags: what a fence orders.
enum : uint32_t { kProxyAsync = 1, kInits = 2, kMemory = 4 };
Step fence(Warp& w, const Instruction& in, uint32_t lanes) {
    if (in.flags & kProxyAsync) {
        // Lanes that stored and do not execute this fence (nor met its lanes since) are not covered by it.
        Clock known = w.clock;
        if (w.unsynced_lanes & ~lanes) {
            known.seen[w.agent] = std::min(known.seen[w.agent], w.sync_tick);
            if (w.small_copies && known.of(w.small_copies->agent))
                known.seen[w.small_copies->agent] = w.small_copies_met;
        }
        if (w.clock.fenced.size() < known.seen.size()) w.clock.fenced.resize(known.seen.size());
        for (size_t i = 0; i < known.seen.size(); ++i) w.clock.fenced[i] = std::max(w.clock.fenced[i], known.seen[i]);
        w.clock.set(w.agent, w.clock.of(w.agent) + 1);
    }
    if (in.flags & (kProxyAsync | kInits))
        for (const auto& cta : w.cluster->ctas)
            for (const auto& barrier : cta->mbarriers)
                if (barrier->init_warp == &w) barrier->init_fenced = true;
    if (in.flags & kInits) {
        w.inits.join(w.clock);
        w.clock.set(w.agent, w.clock.of(w.agent) + 1);
    }
    if (in.flags & kMemory) {
        w.cluster->sync_clock.join(w.clock);
        w.clock.join(w.cluster->sync_clock);
        w.clock.set(w.agent, w.clock.of(w.agent) + 1);
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
    } else if (!decoder.one_of({"async", "async::generic", "async.global", "async.shared::cta", "alias"}).empty()) {
        flags |= kProxyAsync;
        decoder.one_of({"global", "shared::cta", "shared::cluster"});
    } else if (decoder.mod("mbarrier_init")) {
        flags |= kInits;
    } else {
        flags |= kMemory;
    }
    decoder.ignore({"acq_rel", "sc", "release", "acquire", "sync_restrict::shared::cta",
                    "sync_restrict::shared::cluster", "cta", "cluster", "gpu", "sys"});
    decoder.out.flags = flags;
    decoder.set(fence);
}

void decode_membar(Decoder& decoder) {
    decoder.out.flags = kMemory;
    decoder.one_of({"cta", "gl", "sys"});
    decoder.set(fence);
}

}  // namespace

void add_fence(DecodeTable& table) {
    table["fence"] = decode_fence;
    table["membar"] = decode_membar;
}

}  // namespace deep_gemm::simulator
