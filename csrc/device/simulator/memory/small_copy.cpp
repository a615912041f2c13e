// cp.async: copies of 4 to 16 bytes a lane, which go past registers and are waited for by groups or by an mbarrier.
//
// They write through the generic proxy, some time after they were issued. Only the lane that waits knows that its own
// copies have ended: others learn it from it.
#include <cstring>

#include "../../../util/require.hpp"
#include "copy_engine.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr const char* kWhat = "cp.async";
constexpr size_t kMaxSources = 1 << 14;  // where nobody waits by groups: older ones have long been read

/// One lane's part: `given` bytes from memory, zeros after them.
struct Part {
    unsigned lane;
    Place to;
    uint64_t from;
    uint32_t given;
};

SmallCopies& small_copies(Warp& w) {
    if (!w.small_copies) {
        w.small_copies = std::make_unique<SmallCopies>();
        w.small_copies->agent = w.cluster->new_agent(concat(kWhat, " of ", describe_warp(w)), kLanes);
    }
    return *w.small_copies;
}

// Arrivals that waited for nothing but what has just ended.
void arrive_where_done(Warp& w) {
    SmallCopies& copies = *w.small_copies;
    for (size_t i = 0; i < copies.arrivals.size();) {
        if (!small_copies_done(w, copies.arrivals[i].lane, copies.arrivals[i].last)) {
            ++i;
            continue;
        }
        SmallCopies::Arrival arrival = std::move(copies.arrivals[i]);
        copies.arrivals.erase(copies.arrivals.begin() + long(i));
        arrival.known.set(Agent(copies.agent + arrival.lane), arrival.last);
        Mbarrier* barrier = barrier_at(*w.cluster, *arrival.cta, arrival.barrier_offset, {&arrival.known}, &w,
                                       arrival.instruction, false);
        if (barrier) arrive(*w.cluster, *arrival.cta, *barrier, 1, &arrival.known, &w, arrival.instruction);
    }
}

void copy_part(Warp& w, const Instruction& in, const Clock& known, uint32_t number, uint32_t bytes, const Part& part) {
    Cta& cta = *part.to.cta;
    char data[16] = {};
    if (part.given) {
        const char* source = global_range(*w.cluster, part.from, part.given, false, &w, &in);
        if (source) std::memcpy(data, source, part.given);
    }
    async_write({w.cluster, &known, Agent(w.small_copies->agent + part.lane), number, &in, &w, kWhat, kNoSwizzleKnown,
                 true},
                cta, part.to.offset, bytes);
    std::memcpy(part.to.data, data, bytes);
    w.cluster->statistics.global_load_bytes += part.given;
}

// What the launch may write must not change before the copy has read it.
void note_source(Warp& w, const Instruction& in, const Part& part, uint32_t number) {
    if (!part.given || !is_writable(*w.cluster->launch, part.from)) return;
    touch_global(w, part.lane, part.from, part.given, false);
    auto& sources = w.small_copies->sources;
    if (sources.size() == kMaxSources) sources.erase(sources.begin(), sources.begin() + kMaxSources / 2);
    sources.push_back({part.lane, number, part.from, part.given, &in});
}

uint32_t given_bytes(const Warp& w, const Instruction& in, unsigned lane, uint32_t bytes) {
    if (in.x.present) return w.predicate(in.x) >> lane & 1 ? 0 : bytes;  // ignore-src
    return in.c.present ? std::min(bytes, w.row<uint32_t>(in.c)[lane]) : bytes;
}

Step small_copy(Warp& w, const Instruction& in, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    SmallCopies& copies = small_copies(w);
    const uint32_t bytes = in.flags, number = ++copies.issued;
    auto parts = std::make_shared<std::vector<Part>>();
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const uint64_t to = read_any(w, in.a, lane) + uint64_t(in.displacement),
                       from = read_any(w, in.b, lane) + uint64_t(in.displacement2);
        const Place place = resolve(w, Space::shared_cta, uint32_t(to), bytes, true, lane);
        if (from % bytes)
            report(cluster, "misaligned",
                   concat(kWhat, " of ", bytes, " bytes from ", hex(from), ", which is not aligned to them"), &w);
        if (!place.data) continue;
        parts->push_back({lane, place, from, given_bytes(w, in, lane, bytes)});
        copies.latest[lane] = {number, &in};
        note_source(w, in, parts->back(), number);
    }
    copies.in_flight[number] = lanes;
    const auto known = std::make_shared<Clock>(released(w, lanes));
    tick(w);  // what the warp does from here on may overtake the copy
    Warp* warp = &w;
    cluster.defer({[=, &cluster, &in] {
                       for (const Part& part : *parts) copy_part(*warp, in, *known, number, bytes, part);
                       warp->small_copies->in_flight.erase(number);
                       ++cluster.progress;
                       arrive_where_done(*warp);
                   },
                   &in, warp, kWhat});
    return Step::next;
}

Step commit_copies(Warp& w, const Instruction&, uint32_t lanes) {
    SmallCopies& copies = small_copies(w);
    for (uint32_t left = lanes; left; left &= left - 1) copies.groups[std::countr_zero(left)].push_back(copies.issued);
    return Step::next;
}

// Blocks until these lanes' copies up to `last` of each lane have ended.
template <class Last>
Step wait_for(Warp& w, uint32_t lanes, Last&& last) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        if (small_copies_done(w, lane, last(lane))) continue;
        w.wait = {};
        w.wait.kind = Wait::Kind::small_copies;
        w.wait.lane = lane;
        w.wait.value = last(lane);
        return Step::blocked;
    }
    SmallCopies& copies = *w.small_copies;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        copies.waited[lane] = std::max(copies.waited[lane], last(lane));
    }
    std::erase_if(copies.sources, [&](const auto& source) { return source.number <= copies.waited[source.lane]; });
    return Step::next;
}

Step wait_copies(Warp& w, const Instruction& in, uint32_t lanes) {
    SmallCopies& copies = small_copies(w);
    const size_t keep = size_t(in.displacement);
    const auto last = [&](unsigned lane) {
        const auto& groups = copies.groups[lane];
        return groups.size() > keep ? groups[groups.size() - 1 - keep] : 0;
    };
    if (wait_for(w, lanes, last) == Step::blocked) return Step::blocked;
    for (uint32_t left = lanes; left; left &= left - 1) {
        auto& groups = copies.groups[std::countr_zero(left)];
        while (groups.size() > keep) groups.pop_front();
    }
    return Step::next;
}

Step wait_all_copies(Warp& w, const Instruction&, uint32_t lanes) {
    SmallCopies& copies = small_copies(w);
    if (wait_for(w, lanes, [&](unsigned) { return copies.issued; }) == Step::blocked) return Step::blocked;
    for (uint32_t left = lanes; left; left &= left - 1) copies.groups[std::countr_zero(left)].clear();
    return Step::next;
}

Step arrive_when_done(Warp& w, const Instruction& in, uint32_t lanes) {
    SmallCopies& copies = small_copies(w);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const Place place =
            shared_place(w, uint32_t(read_any(w, in.a, lane) + uint64_t(in.displacement)), 8, true, "mbarrier");
        if (!place.cta) continue;
        Mbarrier* barrier = barrier_at(*w.cluster, *place.cta, place.offset, view_of(w, lane), &w, nullptr, false);
        if (!barrier) continue;
        if (!in.flags) ++barrier->pending;  // without .noinc the arrival is its own expectation
        copies.arrivals.push_back({lane, copies.issued, place.cta, place.offset, released(w, 1u << lane), &in});
    }
    tick(w);
    arrive_where_done(w);
    return Step::next;
}

void decode_arrive(Decoder& decoder) {
    Instruction& out = decoder.out;
    if (!decoder.mod("arrive")) decoder.error("cp.async.mbarrier.arrive expected");
    out.flags = decoder.mod("noinc");
    decoder.one_of({"shared::cta", "shared"});
    if (!decoder.mod("b64")) decoder.error(".b64 expected");
    out.a = decoder.address(decoder.node(0), out.displacement);
    decoder.set(arrive_when_done);
}

}  // namespace

bool small_copies_done(const Warp& warp, uint32_t lane, uint32_t last) {
    if (!warp.small_copies) return true;
    for (const auto& [number, lanes] : warp.small_copies->in_flight)
        if (number <= last && lanes >> lane & 1) return false;
    return true;
}

namespace {

// What the lane that issued a copy has done about it.
std::string wait_missing(const SmallCopies& copies, unsigned lane, uint32_t number) {
    const auto& groups = copies.groups[lane];
    const auto group = std::ranges::find_if(groups, [&](uint32_t last) { return last >= number; });
    if (group == groups.end()) return "it is in no committed group";
    const auto newer = size_t(groups.end() - group) - 1;
    return concat("groups committed after its own: ", newer, ", so that cp.async.wait_group ", newer, " waits for it");
}

}  // namespace

SmallCopyState small_copy_state(const Cluster& cluster, Agent agent, uint32_t number) {
    for (const Warp* warp : cluster.warps) {
        const SmallCopies* copies = warp->small_copies.get();
        if (!copies || agent < copies->agent || agent >= copies->agent + kLanes) continue;
        const unsigned lane = agent - copies->agent;
        const std::string who = concat("lane ", lane, " of ", describe_warp(*warp));
        if (copies->waited[lane] >= number) return {true, true, concat(who, ", which issued it, has waited for it")};
        return {true, false,
                concat(who, ", which issued it, has not waited for it: ", wait_missing(*copies, lane, number))};
    }
    return {};
}

void check_copied_sources(Warp& warp, unsigned lane, uint64_t address, uint32_t bytes) {
    const SmallCopies* copies = warp.small_copies.get();
    if (!copies) return;
    const View view = view_of(warp, lane);
    for (const auto& source : copies->sources) {
        const auto agent = Agent(copies->agent + source.lane);
        if (source.address >= address + bytes || address >= source.address + source.bytes ||
            source.number <= view.of(agent))
            continue;
        report(*warp.cluster, "overwrite",
               concat("global memory ", hex(address), " is written by ",
                      describe_agent(*warp.cluster, Agent(warp.agent + lane)), " while ", kWhat,
                      " may still read it\n    ", small_copy_state(*warp.cluster, agent, source.number).text,
                      "\n    earlier: read by ", describe_agent(*warp.cluster, agent), " at ",
                      warp.cluster->module->location(*source.instruction)),
               &warp);
        return;
    }
}

void check_small_copies_ended(const Warp& warp) {
    const SmallCopies* copies = warp.small_copies.get();
    for (unsigned lane = 0; copies && lane < kLanes; ++lane) {
        const auto agent = Agent(copies->agent + lane);
        const auto [number, instruction] = copies->latest[lane];
        if (number <= warp.cta->exit_clock.of(agent)) continue;
        report(*warp.cluster, "early exit",
               concat("block ", warp.cta->rank, " exits without waiting for ", describe_agent(*warp.cluster, agent),
                      "\n    ", small_copy_state(*warp.cluster, agent, number).text),
               nullptr, instruction);
        return;
    }
}

void decode_small_copy(Decoder& decoder) {
    Instruction& out = decoder.out;
    if (decoder.mod("commit_group")) return decoder.set(commit_copies);
    if (decoder.mod("wait_all")) return decoder.set(wait_all_copies);
    if (decoder.mod("wait_group")) {
        out.displacement = decoder.constant(0);
        return decoder.set(wait_copies);
    }
    if (decoder.mod("mbarrier")) return decode_arrive(decoder);
    const bool around_l1 = decoder.mod("cg");
    if (!around_l1 && !decoder.mod("ca")) decoder.error("cp.async.ca or cp.async.cg expected");
    if (decoder.one_of({"shared::cta", "shared"}).empty() || !decoder.mod("global"))
        decoder.error("from .global to .shared expected");
    const bool hint = decoder.mod("L2::cache_hint");
    decoder.ignore({"L2::64B", "L2::128B", "L2::256B"});
    out.a = decoder.address(decoder.node(0), out.displacement);
    out.b = decoder.address(decoder.node(1), out.displacement2);
    const int64_t bytes = decoder.constant(2);
    if (bytes != 16 && (around_l1 || (bytes != 4 && bytes != 8)))
        decoder.error(around_l1 ? ".cg copies 16 bytes" : ".ca copies 4, 8 or 16 bytes");
    out.flags = uint32_t(bytes);
    size_t next = 3;
    if (decoder.count() > next + hint) {
        if (decoder.is_predicate(next))
            out.x = decoder.predicate(next++);
        else
            out.c = decoder.source(next++, Type::u32);
    }
    if (hint) decoder.source(next++, Type::b64);
    decoder.set(small_copy);
}

}  // namespace deep_gemm::simulator
