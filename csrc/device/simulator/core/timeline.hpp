// What happened at barriers, and when: kept where Options::timeline asks for it.
#pragma once

#include "machine.hpp"

namespace deep_gemm::simulator {

/// `warp` is nullptr where a copy or a product did it.
inline void note(Cluster& cluster, const Cta* cta, BarrierKind kind, uint32_t place, BarrierEvent::What what,
                 int64_t amount, const Warp* warp) {
    if (!cluster.launch->options.timeline) return;
    if (cluster.timeline.size() >= kMaxTimeline) {
        ++cluster.timeline_left_out;
        return;
    }
    const uint32_t line = warp ? warp->entry->code[warp->pc].line : 0;
    cluster.timeline.push_back({cluster.time, cluster.index, cta ? cta->linear : cluster.ctas.front()->linear, kind,
                                what, place, amount, warp ? int32_t(warp->index) : -1, line});
}

}  // namespace deep_gemm::simulator
