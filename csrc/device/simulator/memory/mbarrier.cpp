// mbarrier: phases, arrivals, transaction bytes, and the waits for them.
#include "../../../util/require.hpp"
#include "../core/execute.hpp"
#include "../core/timeline.hpp"
#include "memory.hpp"

namespace deep_gemm::simulator {

namespace {

using What = BarrierEvent::What;

constexpr int64_t kMaximumBytes = (int64_t(1) << 20) - 1;

void note(Cluster& cluster, const Cta& cta, const Mbarrier& barrier, What what, int64_t amount,
          const Warp* warp = nullptr) {
    note(cluster, &cta, BarrierKind::mbarrier, barrier.address, what, amount, warp);
}

std::string name_of(const Cta& cta, const Mbarrier& barrier) {
    return concat("mbarrier ", hex(barrier.address), " of block ", cta.rank, " (phase ", barrier.phase, ", ",
                  barrier.pending, " of ", barrier.expected, " arrivals and ", barrier.bytes, " bytes missing)");
}

void check_complete(Cluster& cluster, Cta& cta, Mbarrier& barrier) {
    if (barrier.pending != 0 || barrier.bytes != 0) return;
    const uint32_t parity = barrier.phase & 1;
    barrier.arriving.set(barrier.agent, uint32_t(barrier.phase + 1));
    barrier.completed = barrier.arriving;
    note(cluster, cta, barrier, What::complete, int64_t(barrier.phase));
    ++barrier.phase;
    barrier.pending = barrier.expected;
    ++cluster.progress;
    for (const auto& warp : cta.warps)
        for (auto& fragment : warp->fragments) {
            Wait& wait = fragment.wait;
            if (wait.kind != Wait::Kind::mbarrier || wait.address != barrier.address) continue;
            if (wait.latched)
                report(cluster, "barrier reuse",
                       concat(name_of(cta, barrier), " completes another phase before ", describe_warp(*warp),
                              " has seen the one it waits for: a wait by parity could hang or pass wrongly"),
                       warp.get(), &warp->entry->code[fragment.pc]);
            if (parity == wait.value) wait.latched = true;
        }
}

}  // namespace

Mbarrier* barrier_at(Cluster& cluster, Cta& cta, uint32_t offset, const View& known, const Warp* warp,
                     const Instruction* in, bool remote) {
    Mbarrier* barrier = cta.find_mbarrier(offset);
    if (!barrier) {
        report(cluster, "barrier",
               concat("there is no mbarrier at ", hex(offset), " of block ", cta.rank,
                      ": it was not initialised (yet)"),
               warp, in);
        return nullptr;
    }
    const uint32_t ordered = std::max(known.of(barrier->init_agent), warp ? warp->inits.of(barrier->init_agent) : 0);
    if (barrier->init_tick > ordered)
        report(cluster, "race",
               concat(name_of(cta, *barrier), " is used, but nothing orders its initialisation before"), warp, in);
    else if (remote && !barrier->init_fenced && !cluster.by_hardware())
        report(
            cluster, "proxy fence",
            concat(
                name_of(cta, *barrier),
                " is used by a copy or from another block, but no fence.mbarrier_init (or fence.proxy.async) followed its "
                "initialisation"),
            warp, in);
    return barrier;
}

void arrive(Cluster& cluster, Cta& cta, Mbarrier& barrier, uint32_t count, const Clock* release, const Warp* warp,
            const Instruction* in) {
    if (count > barrier.pending) {
        report(cluster, "arrive count", concat("more arrivals than ", name_of(cta, barrier), " expects in this phase"),
               warp, in);
        count = barrier.pending;
    }
    note(cluster, cta, barrier, What::arrive, count, warp);
    barrier.pending -= count;
    if (release) barrier.arriving.join(*release);
    ++cluster.progress;
    check_complete(cluster, cta, barrier);
}

void expect_bytes(Mbarrier& barrier, int64_t bytes) { barrier.bytes += bytes; }

void complete_bytes(Cluster& cluster, Cta& cta, Mbarrier& barrier, int64_t bytes) {
    note(cluster, cta, barrier, What::bytes, bytes);
    barrier.bytes -= bytes;
    if (barrier.bytes < -kMaximumBytes || barrier.bytes > kMaximumBytes)
        report(cluster, "transaction count", concat(name_of(cta, barrier), " leaves the range of the byte count"),
               nullptr);
    ++cluster.progress;
    check_complete(cluster, cta, barrier);
}

namespace {

enum class Operation : uint32_t { init, invalidate, arrive, arrive_drop, expect, complete, test, attempt };
constexpr uint32_t kOperationMask = 15, kParity = 16, kExpect = 32, kRelaxed = 64, kRemoteForm = 128;
constexpr unsigned kSpaceShift = 8;

Place barrier_place(Warp& w, const Instruction& in, unsigned lane) {
    uint64_t address = read_any(w, in.a, lane) + uint64_t(in.displacement);
    const auto space = Space(in.flags >> kSpaceShift & 15);
    if (space == Space::generic) {
        if ((address & kWindowMask) != kSharedWindow) {
            report(*w.cluster, "out of bounds", concat("mbarrier address ", hex(address), " is not in shared memory"),
                   &w);
            return {};
        }
        address = uint32_t(address);
    }
    if (address % 8) {
        report(*w.cluster, "misaligned", concat("mbarrier address ", hex(address), " is not a multiple of 8"), &w);
        return {};
    }
    return shared_place(w, uint32_t(address), 8, space != Space::shared_cluster, "mbarrier");
}

Step init(Warp& w, const Instruction& in, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const Place place = barrier_place(w, in, lane);
        if (!place.cta) continue;
        const uint32_t count = w.row<uint32_t>(in.b)[lane];
        Cta& cta = *place.cta;
        if (count == 0 || count > kMaximumBytes)
            report(*w.cluster, "barrier", concat("mbarrier.init with a count of ", count), &w);
        if (Mbarrier* old = cta.find_mbarrier(place.offset)) {
            if (old->pending != old->expected || old->bytes)
                report(*w.cluster, "barrier reuse",
                       concat(name_of(cta, *old), " is initialised again in the middle of a phase"), &w);
            cta.mbarrier_at[place.offset / 8] = -1;
        }
        shared_write(w, lane, cta, place.offset, 8, true, true);
        auto barrier = std::make_unique<Mbarrier>();
        barrier->address = place.offset;
        barrier->expected = barrier->pending = count;
        barrier->agent = w.cluster->new_agent(concat("a copy that completes on mbarrier ", hex(place.offset),
                                                     " of block ", cta.rank));
        barrier->init_agent = Agent(w.agent + lane);
        barrier->init_tick = w.tick;
        barrier->init_warp = &w;
        note(*w.cluster, cta, *barrier, What::init, count, &w);
        cta.mbarrier_at[place.offset / 8] = int32_t(cta.mbarriers.size());
        cta.mbarriers.push_back(std::move(barrier));
    }
    ++w.cluster->progress;
    return Step::next;
}

Step invalidate(Warp& w, const Instruction& in, uint32_t lanes) {
    const unsigned lane = std::countr_zero(lanes);
    const Place place = barrier_place(w, in, lane);
    if (!place.cta) return Step::next;
    if (barrier_at(*w.cluster, *place.cta, place.offset, view_of(w, lane), &w, nullptr, false))
        place.cta->mbarrier_at[place.offset / 8] = -1;
    return Step::next;
}

// Of these lanes, those that name the same place as `lane`.
uint32_t lanes_at(const Warp& w, const Instruction& in, uint32_t lanes, unsigned lane) {
    uint32_t same = 0;
    for (uint32_t left = lanes; left; left &= left - 1)
        if (read_any(w, in.a, unsigned(std::countr_zero(left))) == read_any(w, in.a, lane)) same |= left & (0 - left);
    return same;
}

/// What a relaxed operation of a lane lets others know.
Clock fenced(const Warp& w, unsigned lane) { return w.fencing_lanes >> lane & 1 ? w.released_by_fences : Clock(); }

Step arrive_op(Warp& w, const Instruction& in, uint32_t lanes) {
    Clock known;
    const Cta* arrived_in = nullptr;
    uint32_t arrived_at = 0;
    const bool remote_form = in.flags & kRemoteForm,
               drop = Operation(in.flags & kOperationMask) == Operation::arrive_drop;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const Place place = barrier_place(w, in, lane);
        if (!place.cta) continue;
        const bool elsewhere = place.cta != w.cta;
        if (elsewhere && !remote_form)
            report(*w.cluster, "cluster", "an arrive on another block's mbarrier needs .shared::cluster", &w);
        Mbarrier* barrier = barrier_at(*w.cluster, *place.cta, place.offset, view_of(w, lane), &w, nullptr, elsewhere);
        if (!barrier) continue;
        note_remote(w, lane, *place.cta, in);
        if (in.d.present && !remote_form) w.row<uint64_t>(in.d)[lane] = barrier->phase;
        const uint32_t operand = in.b.present ? w.row<uint32_t>(in.b)[lane] : 1;
        if (in.flags & kExpect) {
            note(*w.cluster, *place.cta, *barrier, What::expect, operand, &w);
            expect_bytes(*barrier, operand);
        }
        if (drop) barrier->expected -= in.flags & kExpect ? 1 : operand;
        if (place.cta != arrived_in || place.offset != arrived_at) {
            known = in.flags & kRelaxed ? fenced(w, lane) : released(w, lanes_at(w, in, left, lane));
            arrived_in = place.cta, arrived_at = place.offset;
        }
        arrive(*w.cluster, *place.cta, *barrier, in.flags & kExpect ? 1 : operand, &known, &w, nullptr);
    }
    tick(w);
    return Step::next;
}

Step bytes_op(Warp& w, const Instruction& in, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const Place place = barrier_place(w, in, lane);
        if (!place.cta) continue;
        Mbarrier* barrier =
            barrier_at(*w.cluster, *place.cta, place.offset, view_of(w, lane), &w, nullptr, place.cta != w.cta);
        if (!barrier) continue;
        note_remote(w, lane, *place.cta, in);
        const int64_t bytes = w.row<uint32_t>(in.b)[lane];
        if (Operation(in.flags & kOperationMask) == Operation::expect) {
            note(*w.cluster, *place.cta, *barrier, What::expect, bytes, &w);
            expect_bytes(*barrier, bytes);
        } else {
            barrier->arriving.join(fenced(w, lane));
            complete_bytes(*w.cluster, *place.cta, *barrier, bytes);
        }
    }
    ++w.cluster->progress;
    return Step::next;
}

// A wait blocks the fragment until the phase completes; that is what try_wait may do, and what spares polling. When
// nothing else can run the scheduler lets it time out, so that a kernel that looks at several barriers goes on.
Step wait_op(Warp& w, const Instruction& in, uint32_t lanes) {
    const bool attempt = Operation(in.flags & kOperationMask) == Operation::attempt;
    uint32_t passed = 0;
    uint32_t blocked_address = 0;
    uint64_t blocked_parity = 0, blocked_phase = 0;
    int64_t passed_phase = 0;  // that is over
    Mbarrier* learned_from = nullptr;
    uint32_t learning = 0;
    if (!w.resuming) ++w.cluster->statistics.barrier_waits;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const Place place = barrier_place(w, in, lane);
        if (!place.cta) {
            passed |= 1u << lane;
            continue;
        }
        if (place.cta != w.cta) report(*w.cluster, "cluster", "a wait on another block's mbarrier is not possible", &w);
        Mbarrier* barrier = barrier_at(*w.cluster, *place.cta, place.offset, view_of(w, lane), &w, nullptr, false);
        if (!barrier) {
            passed |= 1u << lane;
            continue;
        }
        uint64_t parity;
        bool over;
        if (in.flags & kParity) {
            parity = w.row<uint32_t>(in.b)[lane];
            if (parity > 1) stop(*w.cluster, "barrier", concat("wait for parity ", parity, ": it is 0 or 1"), &w);
            over = (barrier->phase & 1) != parity;
        } else {
            const uint64_t state = w.row<uint64_t>(in.b)[lane];
            parity = state & 1;
            over = barrier->phase > state;
        }
        if (w.resuming && w.wait.kind == Wait::Kind::mbarrier && w.wait.latched && w.wait.address == place.offset &&
            w.wait.value == parity)
            over = true;
        if (over) {
            if (barrier != learned_from && learning) learn(w, learning, learned_from->completed), learning = 0;
            learned_from = barrier;
            passed_phase = int64_t(barrier->phase) - 1;
            if (!(in.flags & kRelaxed)) learning |= 1u << lane;
            passed |= 1u << lane;
        } else {
            blocked_address = place.offset;
            blocked_parity = parity;
            blocked_phase = barrier->phase;
        }
    }
    if (learning) learn(w, learning, learned_from->completed);
    if (learned_from && passed == lanes) note(*w.cluster, *w.cta, *learned_from, What::pass, passed_phase, &w);
    const bool give_up = w.resuming && (w.wait.timed_out || w.wait.kind == Wait::Kind::poll);
    if (!passed && !give_up) {
        if (!w.resuming) {
            ++w.cluster->statistics.barrier_waits_blocked;
            note(*w.cluster, w.cta, BarrierKind::mbarrier, blocked_address, What::blocked, int64_t(blocked_phase), &w);
        }
        w.wait = {};
        w.wait.kind = attempt ? Wait::Kind::mbarrier : Wait::Kind::poll;
        w.wait.address = blocked_address;
        w.wait.value = attempt ? blocked_parity : w.cluster->progress;
        return Step::blocked;
    }
    w.mask(in.d) = (w.mask(in.d) & ~lanes) | passed;
    return Step::next;
}

Step pending_count(Warp& w, const Instruction& in, uint32_t) {
    stop(*w.cluster, "unsupported", "mbarrier.pending_count: the state of an mbarrier is opaque here", &w);
    (void)in;
}

void decode_mbarrier(Decoder& decoder) {
    Instruction& out = decoder.out;
    const auto name = decoder.one_of({"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "test_wait",
                                      "try_wait", "pending_count"});
    if (name.empty()) decoder.error("unknown mbarrier operation");
    uint32_t flags = 0;
    if (name.starts_with("arrive")) {
        if (decoder.mod("expect_tx")) flags |= kExpect;
        decoder.mod("noComplete");
    }
    if (decoder.mod("parity")) flags |= kParity;
    if (decoder.one_of({"release", "acquire", "relaxed"}) == "relaxed") flags |= kRelaxed;
    decoder.one_of({"cta", "cluster"});
    const auto space_name = decoder.one_of({"shared::cta", "shared::cluster", "shared"});
    Space space = space_name.empty()                ? Space::generic
                  : space_name == "shared::cluster" ? Space::shared_cluster
                                                    : Space::shared_cta;
    if (space == Space::shared_cluster) flags |= kRemoteForm;
    decoder.need_type();
    const auto operation = [&](Operation op, Handler handler) {
        out.flags = flags | uint32_t(op) | uint32_t(space) << kSpaceShift;
        decoder.set(handler);
    };
    if (name == "init") {
        out.a = decoder.address(decoder.node(0), out.displacement);
        out.b = decoder.source(1, Type::u32);
        operation(Operation::init, init);
    } else if (name == "inval") {
        out.a = decoder.address(decoder.node(0), out.displacement);
        operation(Operation::invalidate, invalidate);
    } else if (name == "expect_tx" || name == "complete_tx") {
        out.a = decoder.address(decoder.node(0), out.displacement);
        out.b = decoder.source(1, Type::u32);
        operation(name == "expect_tx" ? Operation::expect : Operation::complete, bytes_op);
    } else if (name.starts_with("arrive")) {
        size_t next = 0;
        if (!decoder.is_address(0)) {
            const Node& state = decoder.node(next++);
            if (state.name != "_") out.d = decoder.dest(state, Type::b64);
        }
        out.a = decoder.address(decoder.node(next++), out.displacement);
        if (next < decoder.count())
            out.b = decoder.source(next, Type::u32);
        else if (flags & kExpect)
            decoder.error("expect_tx needs a byte count");
        operation(name == "arrive" ? Operation::arrive : Operation::arrive_drop, arrive_op);
    } else if (name == "pending_count") {
        out.d = decoder.dest(0, Type::u32);
        out.a = decoder.source(1, Type::b64);
        operation(Operation::test, pending_count);
    } else {
        out.d = decoder.predicate_dest(decoder.node(0));
        out.a = decoder.address(decoder.node(1), out.displacement);
        out.b = decoder.source(2, flags & kParity ? Type::u32 : Type::b64);
        if (decoder.count() > 3) decoder.source(3, Type::u32);  // how long it may sleep
        operation(name == "try_wait" ? Operation::attempt : Operation::test, wait_op);
    }
}

}  // namespace

void add_mbarrier(DecodeTable& table) { table["mbarrier"] = decode_mbarrier; }

}  // namespace deep_gemm::simulator
