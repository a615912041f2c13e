// Runs the warps of a cluster: fragments of diverged warps, blocking, asynchronous events, deadlock.
#include <optional>

#include "../../../util/interrupt.hpp"
#include "../../../util/require.hpp"
#include "../memory/memory.hpp"
#include "devices.hpp"
#include "dice.hpp"
#include "execute.hpp"
#include "fragments.hpp"

namespace deep_gemm::simulator {

void finish_cluster_barrier(Cluster& cluster);  // barrier.cpp

Step branch(Warp& warp, uint32_t taken, uint32_t target) {
    if (taken == warp.lanes) {
        warp.pc = target;
        return Step::jumped;
    }
    warp.lanes &= ~taken;
    ++warp.pc;
    warp.fragments.push_back({target, taken, {}, 0});
    return Step::jumped;
}

void exit_lanes(Warp& warp, uint32_t lanes) {
    warp.exited |= lanes;
    warp.lanes &= ~lanes;
    ++warp.cluster->progress;
}

namespace {

// Without any store, arrival or copy: from then on asynchronous work takes effect, for which warps may be spinning, and
// in the end nothing will ever happen.
constexpr uint64_t kSpinInstructions = 20'000, kHangInstructions = 8'000'000;
// The same where what is waited for may be another device's doing, which is asked for progress too.
constexpr uint64_t kHangOfDevices = 1'000'000;
constexpr uint64_t kTurn = 20'000, kTurnOfSpinning = 256;  // instructions of one warp before others run

void propagate_taint(Warp& warp, const Instruction& in, const Effects& effects, uint32_t lanes) {
    uint32_t bad = 0;
    if (in.is_select) {
        const uint32_t chosen = warp.predicate(in.c);
        bad = (tainted_lanes(warp, in.a) & chosen) | (tainted_lanes(warp, in.b) & ~chosen) | tainted_lanes(warp, in.c);
    } else {
        for (const auto& operand : effects.reads) bad |= tainted_lanes(warp, operand);
    }
    for (const auto& operand : effects.writes)
        if (operand.id < warp.tainted.size())
            warp.tainted[operand.id] = (warp.tainted[operand.id] & ~lanes) | (bad & lanes);
}

/// The time at which the first sleeper wakes; none where nobody sleeps.
std::optional<uint64_t> first_to_wake(const Cluster& cluster) {
    std::optional<uint64_t> first;
    for (const Warp* warp : cluster.warps)
        for (const auto& fragment : warp->fragments)
            if (fragment.wait.kind == Wait::Kind::sleep)
                first = std::min(first.value_or(fragment.wait.value), fragment.wait.value);
    return first;
}

/// Run one warp until it blocks, ends, or has executed `budget` instructions.
void run_warp(Cluster& cluster, Warp& warp, uint64_t budget) {
    const Entry& entry = *warp.entry;
    const Instruction* code = entry.code.data();
    merge(warp);
    int chosen = choose_fragment(warp);
    if (chosen < 0) return;
    enter_fragment(warp, size_t(chosen));
    while (budget-- > 0) {
        const Instruction& in = code[warp.pc];
        uint32_t lanes = warp.lanes;
        if (in.guard.present) {
            lanes &= warp.predicate(in.guard);
            if (warp.any_tainted && in.is_branch && warp.tainted[in.guard.id] & warp.lanes) {
                report(cluster, "uninitialised", "a branch depends on shared memory that was never written", &warp);
                warp.tainted[in.guard.id] = 0;
            }
        }
        Step step = Step::next;
        if (lanes == 0 && in.gather == Gather::none) {
            ++warp.pc;
        } else {
            bool execute = true;
            if (in.gather != Gather::none) {
                const Gathered gathered = gather(warp, in, lanes);
                if (gathered == Gathered::skip) execute = false;
                if (gathered == Gathered::no) {
                    warp.wait = {};
                    warp.wait.kind = Wait::Kind::gather;
                    step = Step::blocked;
                    execute = false;
                }
            }
            // A machine waits for a register that is used; the manual wants wait::ld before (pending_registers.cpp).
            if (execute && entry.has_tensor_load && warp.tensor && cluster.by_hardware() &&
                uses_loading(warp, entry.effects[warp.pc])) {
                warp.wait = {};
                warp.wait.kind = Wait::Kind::tensor_registers;
                step = Step::blocked;
                execute = false;
            }
            if (execute) {
                ++warp.executed;
                ++cluster.time;
                ++cluster.counts[warp.pc];
                if (in.gather != Gather::none) {
                    if (cluster.by_hardware()) lanes_met(warp, lanes);
                    // Where lanes have met, the next turn may let them drift.
                    if (cluster.launch->options.schedule == Schedule::random && cluster.dice->next() % 2) budget = 0;
                }
                if (entry.has_wgmma && !in.is_wgmma) {
                    const Effects& effects = entry.effects[warp.pc];
                    if (warp.wgmma_issued > warp.wgmma_waited) check_multiplying(warp, in, effects);
                    if (!in.is_move)
                        for (const auto& operand : effects.writes) warp.written_register[operand.id] = warp.executed;
                }
                if (entry.has_tensor_load && warp.tensor && !cluster.by_hardware())
                    check_loading(warp, in, entry.effects[warp.pc]);
                if (warp.any_tainted && !in.sets_taint) propagate_taint(warp, in, entry.effects[warp.pc], lanes);
                if (in.gather == Gather::members) {
                    // Lanes with different member masks are different groups.
                    for (uint32_t left = lanes; left;) {
                        const uint32_t members = warp.row<uint32_t>(in.x)[std::countr_zero(left)] & left;
                        step = in.execute(warp, in, members);
                        left &= ~members;
                    }
                } else {
                    step = in.execute(warp, in, lanes);
                }
            }
            if (step == Step::next)
                ++warp.pc;
            else if (step == Step::exited && warp.lanes)
                ++warp.pc, step = Step::jumped;
        }
        if (step == Step::next) {
            warp.resuming = false;
            if (warp.fragments.size() == 1) continue;
        }
        if (step == Step::jumped && warp.fragments.size() == 1) {
            warp.resuming = false;
            if (cluster.launch->stop.load(std::memory_order_relaxed)) throw HazardStop{};
            continue;
        }
        // The slow path: diverged, blocked or gone.
        if (step == Step::exited) {
            warp.fragments.erase(warp.fragments.begin() + long(warp.current));
            for (auto& fragment : warp.fragments)  // a rendezvous may be complete without the lanes that left
                if (fragment.wait.kind == Wait::Kind::gather) fragment.wait = {};
            if (warp.fragments.empty()) return;
        } else {
            leave_fragment(warp);
            if (step == Step::blocked) {
                warp.fragments[warp.current].wait = warp.wait;
                if (warp.wait.kind == Wait::Kind::gather) release_warp_syncs(warp);
            } else if (warp.resuming && step == Step::next) {
                warp.resuming = false;
            }
        }
        merge(warp);
        chosen = choose_fragment(warp);
        if (chosen < 0) return;
        enter_fragment(warp, size_t(chosen));
    }
    leave_fragment(warp);
    // Lanes elsewhere may have what this fragment spins for: let them go first next time.
    ++warp.fragments[warp.current].turns;
}

void finish_warp(Cluster& cluster, Warp& warp) {
    if (!warp.bulk_open.empty() && !cluster.by_hardware())
        report(cluster, "early exit",
               concat(describe_warp(warp), " exits without waiting for its bulk copies that read shared memory"),
               &warp);
    if (warp.wgmma_issued > warp.wgmma_waited)
        report(cluster, "early exit",
               concat(describe_warp(warp), " exits while its wgmma instructions are not waited for"), &warp);
    Cta& cta = *warp.cta;
    release(warp, warp.created, cta.exit_clock);
    if (--cta.live_warps == 0) {
        cta.exited = true;
        check_deallocated(cta);
        if (!cluster.by_hardware())
            for (const auto& each : cta.warps) check_small_copies_ended(*each);
        for (const auto& [agent, last] : cta.tensor_users)
            if (last > cta.exit_clock.of(agent))
                report(cluster, "early exit",
                       concat("block ", cta.rank, " exits while ", describe_agent(cluster, agent),
                              " that works on its memory is not waited for"),
                       nullptr);
        for (const auto& barrier : cta.mbarriers)
            if (cta.find_mbarrier(barrier->address) == barrier.get() &&
                barrier->last_write > cta.exit_clock.of(barrier->agent))
                report(cluster, "early exit",
                       concat("block ", cta.rank, " exits without waiting for the copies that complete on mbarrier ",
                              hex(barrier->address)),
                       nullptr, barrier->last_copy);
    }
    finish_cluster_barrier(cluster);
}

}  // namespace

void Cluster::defer(Event event) {
    if (launch->options.schedule == Schedule::eager) return event.fire();
    events.push_back(std::make_unique<Event>(std::move(event)));
}

void Cluster::fire(size_t index) {
    auto event = std::move(events[index]);
    events.erase(events.begin() + long(index));
    event->fire();
}

Agent Cluster::new_agent(std::string name, unsigned count) {
    agent_names.insert(agent_names.end(), count, std::move(name));
    const Agent first = next_agent;
    next_agent = Agent(next_agent + count);
    return first;
}

void Cluster::run() {
    const Schedule schedule = launch->options.schedule;
    const bool shuffled = schedule == Schedule::random;
    std::mt19937_64& random = dice->next;
    size_t next = 0, live = warps.size();
    std::vector<bool> done(warps.size()), spins(warps.size());
    int idle_rounds = 0;
    uint64_t idle_progress = ~uint64_t(0), last_progress = 0, quiet = 0, quiet_turns = 0;
    while (live > 0) {
        if (launch->devices) launch->devices->pass(*this);
        if (launch->stop.load(std::memory_order_relaxed)) throw HazardStop{};
        check_interrupt_now_and_then();
        if (shuffled && !events.empty() && random() % 4 == 0) fire(random() % events.size());
        // A random start, then the first that can run.
        const size_t start = shuffled ? random() % warps.size() : next;
        Warp* warp = nullptr;
        for (size_t i = 0; i < warps.size(); ++i) {
            const size_t at = (start + i) % warps.size();
            if (!done[at] && runnable(*warps[at])) {
                warp = warps[at];
                next = at + 1;
                break;
            }
        }
        if (warp) {
            const uint64_t before = warp->executed, progress_before = progress;
            const uint64_t budget = shuffled              ? 1 + random() % (random() % 4 ? 24 : 400)
                                    : spins[warp->number] ? kTurnOfSpinning
                                                          : kTurn;
            if (shuffled) maybe_drift(*warp, random);
            run_warp(*this, *warp, budget);
            spins[warp->number] = progress == progress_before && warp->executed - before >= budget;
            if (warp->fragments.empty()) {
                done[warp->number] = true;
                --live;
                finish_warp(*this, *warp);
            }
            quiet = progress == last_progress ? quiet + (warp->executed - before) : 0;
            quiet_turns = progress == last_progress ? quiet_turns + 1 : 0;
            last_progress = progress;
            if (quiet > kSpinInstructions && quiet_turns > 2 * warps.size() && !events.empty()) {
                fire(shuffled ? random() % events.size() : 0);
                quiet = quiet_turns = 0;
            }
            if (launch->devices && quiet > kHangOfDevices && launch->devices->have_moved(*this)) quiet = 0;
            if (quiet > (launch->devices ? kHangOfDevices : kHangInstructions))
                stop(*this, "deadlock",
                     concat("warps run in circles: ", quiet, " instructions without a store, an arrival or a copy"),
                     warp);
            continue;
        }
        if (!events.empty()) {
            fire(shuffled ? random() % events.size() : 0);
            continue;
        }
        if (const auto wakes = first_to_wake(*this)) {
            time = *wakes;
            continue;
        }
        // Nothing can run. Let polling waits time out a few times, in case the kernel does something else then.
        if (progress != idle_progress) idle_rounds = 0;
        idle_progress = progress;
        bool polled = false;
        for (Warp* waiting : warps)
            for (auto& fragment : waiting->fragments)
                if (fragment.wait.kind == Wait::Kind::poll || fragment.wait.kind == Wait::Kind::mbarrier)
                    polled = fragment.wait.timed_out = true;
        if (!polled || ++idle_rounds > 3) {
            for (Warp* waiting : warps)
                for (auto& fragment : waiting->fragments) fragment.wait.timed_out = false;
            stop(*this, "deadlock", "no warp can go on and no asynchronous work is under way", nullptr);
        }
    }
    while (!events.empty()) fire(shuffled ? random() % events.size() : 0);
}

}  // namespace deep_gemm::simulator
