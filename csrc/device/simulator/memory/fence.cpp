// fence, membar: what each kind makes visible to whom.
#include "../core/execute.hpp"
#include "arena.hpp"
#include "map_changes.hpp"
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

Step release_maps(Warp& w, const Instruction& in, uint32_t lanes) {
    publish_maps(w, lanes, Scope(in.flags));
    return Step::next;
}

Step acquire_maps(Warp& w, const Instruction& in, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        const auto lane = unsigned(std::countr_zero(left));
        acquire_map(w, 1u << lane, read_any(w, in.a, lane) + uint64_t(in.displacement), Scope(in.flags));
    }
    return Step::next;
}

void decode_map_fence(Decoder& decoder) {
    decoder.out.flags = uint32_t(take_scope(decoder, Scope::sys));
    if (decoder.mod("release")) return decoder.set(release_maps);
    if (!decoder.mod("acquire")) decoder.error("fence.proxy.tensormap is of release or acquire");
    decoder.out.a = decoder.address(decoder.node(0), decoder.out.displacement);
    if (decoder.constant(1) != sizeof(EncodedTensorMap)) decoder.error("a tensor map has 128 bytes");
    decoder.set(acquire_maps);
}

void decode_fence(Decoder& decoder) {
    uint32_t flags = 0;
    if (decoder.mod("proxy") && decoder.mod("tensormap::generic")) return decode_map_fence(decoder);
    if (!decoder.one_of({"async", "async::generic", "alias"}).empty()) {
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
