// What the lanes of a warp know: they learn one by one, and share it where a barrier or a __syncwarp says so.
#include <bit>

#include "machine.hpp"

namespace deep_gemm::simulator {

namespace {

void give(Warp& warp, Knowledge& knowledge, uint32_t lanes) {
    knowledge.lanes = lanes;
    for (uint32_t left = lanes; left; left &= left - 1) warp.known_by[std::countr_zero(left)] = &knowledge;
}

/// What exactly these lanes know, apart from what others do; `lanes` are of one Knowledge. The dead need none.
Knowledge& set_apart(Warp& warp, Knowledge& knowledge, uint32_t lanes) {
    const uint32_t others = knowledge.lanes & ~lanes;
    if (!(others & warp.alive())) return knowledge;
    auto& part = *warp.knowledge.emplace_back(std::make_unique<Knowledge>(Knowledge{lanes, knowledge.clock}));
    knowledge.lanes = others;
    give(warp, part, lanes);
    return part;
}

template <class Change>
void change(Warp& warp, uint32_t lanes, Change&& body) {
    for (size_t i = 0, count = warp.knowledge.size(); i < count; ++i) {
        Knowledge& knowledge = *warp.knowledge[i];
        if (const uint32_t these = knowledge.lanes & lanes) body(set_apart(warp, knowledge, these).clock);
    }
}

void add_own_doings(const Warp& warp, uint32_t lanes, Clock& clock) {
    const SmallCopies* copies = warp.small_copies.get();
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = unsigned(std::countr_zero(left));
        clock.set(Agent(warp.agent + lane), warp.tick);
        if (warp.cluster->launch->devices) clock.set_far(warp.far_agent + lane, warp.tick);
        if (warp.fenced[lane]) clock.set_fenced(Agent(warp.agent + lane), warp.fenced[lane]);
        if (!copies || !copies->waited[lane]) continue;
        clock.set(Agent(copies->agent + lane), copies->waited[lane]);
        if (copies->fenced[lane]) clock.set_fenced(Agent(copies->agent + lane), copies->fenced[lane]);
    }
}

}  // namespace

View view_of(const Warp& warp, unsigned lane) {
    const SmallCopies* copies = warp.small_copies.get();
    return {&warp.known_by[lane]->clock, Agent(warp.agent + lane), copies ? Agent(copies->agent + lane) : View::kNobody,
            copies ? copies->waited[lane] : 0};
}

void release(const Warp& warp, uint32_t lanes, Clock& into) {
    for (const auto& knowledge : warp.knowledge)
        if (knowledge->lanes & lanes) into.join(knowledge->clock);
    add_own_doings(warp, lanes, into);
}

Clock released(const Warp& warp, uint32_t lanes) {
    Clock clock;
    release(warp, lanes, clock);
    return clock;
}

void learn(Warp& warp, uint32_t lanes, const Clock& clock) {
    change(warp, lanes, [&](Clock& known) { known.join(clock); });
}

void learn(Warp& warp, uint32_t lanes, Agent agent, uint32_t tick) {
    change(warp, lanes, [&](Clock& known) { known.set(agent, tick); });
}

void fence_for_async(Warp& warp, uint32_t lanes) {
    change(warp, lanes, [](Clock& known) {
        if (known.fenced.size() < known.seen.size()) known.fenced.resize(known.seen.size());
        for (size_t i = 0; i < known.seen.size(); ++i) known.fenced[i] = std::max(known.fenced[i], known.seen[i]);
    });
    SmallCopies* copies = warp.small_copies.get();
    for (uint32_t left = lanes; left; left &= left - 1) {
        const int lane = std::countr_zero(left);
        warp.fenced[lane] = warp.tick;
        if (copies) copies->fenced[lane] = copies->waited[lane];
    }
    tick(warp);
}

void lanes_met(Warp& warp, uint32_t lanes) {
    Knowledge* common = nullptr;
    for (size_t i = 0; i < warp.knowledge.size();) {
        const uint32_t these = warp.knowledge[i]->lanes & lanes;
        if (!these) {
            ++i;
            continue;
        }
        Knowledge& part = set_apart(warp, *warp.knowledge[i], these);
        if (!common) {
            common = &part;
            ++i;
            continue;
        }
        if (&part == common) {
            ++i;
            continue;
        }
        common->clock.join(part.clock);
        give(warp, *common, common->lanes | part.lanes);
        std::erase_if(warp.knowledge, [&](const auto& knowledge) { return knowledge.get() == &part; });
    }
    add_own_doings(warp, lanes, common->clock);
    tick(warp);
    if (lanes == warp.alive()) forget_touches(warp);
}

}  // namespace deep_gemm::simulator
