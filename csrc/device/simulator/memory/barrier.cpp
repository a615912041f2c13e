// Barriers of the block (bar, barrier.cta), of the cluster (barrier.cluster) and of a warp (bar.warp.sync).
#include "../../../util/require.hpp"
#include "../core/execute.hpp"
#include "../core/timeline.hpp"

namespace deep_gemm::simulator {

void decode_cluster_barrier(Decoder& decoder);

namespace {

enum class Kind : uint32_t { sync, arrive, reduce_and, reduce_or, reduce_popc };

// What bar.red gives each thread, once all have come.
void give_result(Warp& w, const Instruction& in, uint32_t lanes, Kind kind, uint32_t votes, uint32_t threads) {
    if (kind == Kind::reduce_popc) {
        for_lanes(lanes, [&](unsigned i) { w.row<uint32_t>(in.d)[i] = votes; });
    } else if (kind == Kind::reduce_and || kind == Kind::reduce_or) {
        const bool holds = kind == Kind::reduce_and ? votes == threads : votes != 0;
        w.mask(in.d) = (w.mask(in.d) & ~lanes) | (holds ? lanes : 0);
    }
}

void complete(Cluster& cluster, NamedBarrier& barrier) {
    barrier.completed = barrier.arriving;
    barrier.result = barrier.votes;
    barrier.votes = 0;
    barrier.arrived = barrier.expected = 0;
    barrier.who.clear();
    ++barrier.generation;
    ++cluster.progress;
}

Step bar(Warp& w, const Instruction& in, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    const auto kind = Kind(in.flags & 7);
    const uint32_t number = w.row<uint32_t>(in.a)[std::countr_zero(lanes)];
    if (number >= 16) stop(cluster, "barrier", concat("named barrier ", number, " does not exist: there are 16"), &w);
    NamedBarrier& barrier = w.cta->barriers[number];
    if (w.resuming) {
        note(cluster, w.cta, BarrierKind::block, number, BarrierEvent::What::pass, int64_t(barrier.generation) - 1, &w);
        learn(w, lanes, barrier.completed);
        lanes_met(w, lanes);
        give_result(w, in, lanes, kind, barrier.result, uint32_t(w.wait.lane));
        return Step::next;
    }
    const uint32_t block =
        w.cluster->launch->launch->block[0] * w.cluster->launch->launch->block[1] * w.cluster->launch->launch->block[2];
    const uint32_t whole = (block + kLanes - 1) / kLanes * kLanes;
    const uint32_t expected = in.b.present ? w.row<uint32_t>(in.b)[std::countr_zero(lanes)] : whole;
    if (expected % kLanes || expected == 0 || expected > whole)
        stop(cluster, "barrier",
             concat("barrier ", number, " for ", expected, " threads: a multiple of 32 up to ", whole, " is possible"),
             &w);
    if (barrier.arrived && barrier.expected != expected)
        report(cluster, "barrier",
               concat("barrier ", number, " is used for ", expected, " threads while ", barrier.arrived,
                      " threads wait at it for ", barrier.expected),
               &w);
    barrier.expected = expected;
    barrier.arrived += in.gather == Gather::warp ? kLanes : std::popcount(lanes);
    if (in.c.present) barrier.votes += std::popcount(w.predicate(in.c) & lanes);
    release(w, lanes, barrier.arriving);
    barrier.who.push_back(concat("warp ", w.index));
    tick(w);
    note(cluster, w.cta, BarrierKind::block, number, BarrierEvent::What::arrive,
         in.gather == Gather::warp ? kLanes : std::popcount(lanes), &w);
    if (barrier.arrived > expected)
        report(cluster, "barrier",
               concat("more threads (", barrier.arrived, ") arrive at barrier ", number, " than it is for (", expected,
                      ")"),
               &w);
    if (barrier.arrived >= expected) {
        note(cluster, w.cta, BarrierKind::block, number, BarrierEvent::What::complete, int64_t(barrier.generation),
             nullptr);
        complete(cluster, barrier);
        if (kind != Kind::arrive) {
            learn(w, lanes, barrier.completed);
            lanes_met(w, lanes);
        }
        give_result(w, in, lanes, kind, barrier.result, expected);
        return Step::next;
    }
    if (kind == Kind::arrive) return Step::next;
    note(cluster, w.cta, BarrierKind::block, number, BarrierEvent::What::blocked, int64_t(barrier.generation), &w);
    w.wait = {};
    w.wait.kind = Wait::Kind::named_barrier;
    w.wait.address = number;
    w.wait.value = barrier.generation;
    w.wait.lane = expected;
    return Step::blocked;
}

Step warp_sync(Warp& w, const Instruction&, uint32_t lanes) {
    lanes_met(w, lanes);
    return Step::next;
}

void decode_bar(Decoder& decoder) {
    const bool long_name = decoder.mnemonic() == "barrier";
    if (long_name && decoder.mod("cluster")) {
        return decode_cluster_barrier(decoder);
    }
    if (decoder.mod("warp")) {
        decoder.mod("sync");
        decoder.out.x = decoder.source(0, Type::u32);
        decoder.out.gather = Gather::members;
        return decoder.set(warp_sync);
    }
    decoder.mod("cta");
    auto kind = Kind::sync;
    size_t next = 0;
    if (decoder.mod("arrive")) {
        kind = Kind::arrive;
    } else if (decoder.mod("red")) {
        const auto operation = decoder.one_of({"popc", "and", "or"});
        if (operation.empty()) decoder.error("no reduction");
        kind = operation == "popc" ? Kind::reduce_popc : operation == "and" ? Kind::reduce_and : Kind::reduce_or;
        decoder.out.d = decoder.dest(next++, decoder.need_type());
    } else if (!decoder.mod("sync")) {
        decoder.error("barrier sync, arrive or red expected");
    }
    // bar.sync is barrier.sync.aligned
    const bool aligned = decoder.mod("aligned") || !long_name;
    const bool reduces = decoder.out.d.present;
    decoder.out.flags = uint32_t(kind);
    decoder.out.a = decoder.source(next++, Type::u32);
    if (decoder.count() > next + reduces) decoder.out.b = decoder.source(next++, Type::u32);
    if (reduces) decoder.out.c = decoder.predicate(next);
    if (aligned) decoder.out.gather = Gather::warp;
    decoder.set(bar);
}

constexpr uint32_t kRelaxed = 2;

uint32_t missing_lanes(const Cluster& cluster) {
    uint32_t count = 0;
    for (size_t i = 0; i < cluster.warps.size(); ++i)
        count += std::popcount(cluster.warps[i]->alive() & ~uint32_t(cluster.cluster_arrivals[i]));
    return count;
}

}  // namespace

void finish_cluster_barrier(Cluster& cluster) {
    // Exited threads count as arrived; a barrier nobody has come to is not complete.
    bool any = false;
    for (const uint64_t lanes : cluster.cluster_arrivals) any |= lanes != 0;
    if (!any || missing_lanes(cluster)) return;
    std::fill(cluster.cluster_arrivals.begin(), cluster.cluster_arrivals.end(), 0);
    note(cluster, nullptr, BarrierKind::cluster, 0, BarrierEvent::What::complete,
         int64_t(cluster.cluster_barrier.generation), nullptr);
    complete(cluster, cluster.cluster_barrier);
    cluster.inits_completed = cluster.inits_arriving;
}

namespace {

Step cluster_arrive(Warp& w, const Instruction& in, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    const size_t index = w.number;
    if (cluster.cluster_arrivals[index] & lanes)
        report(cluster, "barrier", "barrier.cluster.arrive twice without a wait between", &w);
    cluster.cluster_arrivals[index] |= lanes;
    for (uint32_t left = lanes; left; left &= left - 1)
        cluster.cluster_waiting[w.agent + std::countr_zero(left)] = cluster.cluster_barrier.generation + 1;
    if (!(in.flags & kRelaxed) || cluster.by_hardware()) release(w, lanes, cluster.cluster_barrier.arriving);
    note(cluster, w.cta, BarrierKind::cluster, 0, BarrierEvent::What::arrive, std::popcount(lanes), &w);
    cluster.inits_arriving.join(w.inits);  // a fence.mbarrier_init releases by itself
    tick(w);
    finish_cluster_barrier(cluster);
    return Step::next;
}

Step cluster_wait(Warp& w, const Instruction&, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    const uint64_t wanted = cluster.cluster_waiting[w.agent + std::countr_zero(lanes)];
    if (wanted == 0) stop(cluster, "barrier", "barrier.cluster.wait without an arrive before it", &w);
    if (cluster.cluster_barrier.generation < wanted) {
        note(cluster, w.cta, BarrierKind::cluster, 0, BarrierEvent::What::blocked,
             int64_t(cluster.cluster_barrier.generation), &w);
        w.wait = {};
        w.wait.kind = Wait::Kind::cluster_barrier;
        w.wait.value = wanted - 1;
        return Step::blocked;
    }
    note(cluster, w.cta, BarrierKind::cluster, 0, BarrierEvent::What::pass, int64_t(wanted) - 1, &w);
    learn(w, lanes, cluster.cluster_barrier.completed);
    w.inits.join(cluster.inits_completed);
    return Step::next;
}

}  // namespace

void decode_cluster_barrier(Decoder& decoder) {
    const auto kind = decoder.one_of({"arrive", "wait"});
    const auto order = decoder.one_of({"release", "relaxed", "acquire"});
    if (decoder.mod("aligned")) decoder.out.gather = Gather::warp;
    decoder.out.flags = order == "relaxed" ? kRelaxed : 0;
    decoder.set(kind == "arrive" ? cluster_arrive : cluster_wait);
}

void add_barrier(DecodeTable& table) { table["bar"] = table["barrier"] = decode_bar; }

}  // namespace deep_gemm::simulator
