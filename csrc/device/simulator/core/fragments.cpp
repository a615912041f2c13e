// The fragments of a warp whose lanes have parted: which may run, how they join, how they drift apart.
#include <bit>

#include "../../../util/require.hpp"
#include "execute.hpp"
#include "fragments.hpp"

namespace deep_gemm::simulator {

bool runnable(const Warp& warp, const Fragment& fragment) {
    const Wait& wait = fragment.wait;
    switch (wait.kind) {
        case Wait::Kind::none:
            return true;
        case Wait::Kind::gather:
            return false;  // another fragment must come here first
        case Wait::Kind::named_barrier:
            return warp.cta->barriers[wait.address].generation > wait.value;
        case Wait::Kind::cluster_barrier:
            return warp.cluster->cluster_barrier.generation > wait.value;
        case Wait::Kind::mbarrier:
            return wait.latched || wait.timed_out;
        case Wait::Kind::wgmma:
            return warp.cta->warpgroups[warp.index / 4].executed >= wait.value;
        case Wait::Kind::bulk:
            return bulk_done(warp, wait);
        case Wait::Kind::small_copies:
            return small_copies_done(warp, wait.lane, uint32_t(wait.value));
        case Wait::Kind::tensor_columns:
            return tensor_columns_free(warp, uint32_t(wait.value));
        case Wait::Kind::tensor_pair:
            return pair_has_allocated(warp, uint32_t(wait.value));
        case Wait::Kind::tensor_moves:
            return tensor_moves_done(warp, wait.value != 0);
        case Wait::Kind::tensor_registers:
            return tensor_moves_done(warp, false);
        case Wait::Kind::registers:
            return warp.cta->free_registers >= wait.value;
        case Wait::Kind::sleep:
            return warp.cluster->time >= wait.value;
        case Wait::Kind::poll:
            return wait.timed_out || warp.cluster->progress > wait.value;
    }
    return false;
}

bool runnable(const Warp& warp) {
    for (const auto& fragment : warp.fragments)
        if (runnable(warp, fragment)) return true;
    return false;
}

void leave_fragment(Warp& warp) {
    Fragment& fragment = warp.fragments[warp.current];
    fragment.pc = warp.pc;
    fragment.lanes = warp.lanes;
}

void enter_fragment(Warp& warp, size_t index) {
    Fragment& fragment = warp.fragments[index];
    warp.current = index;
    warp.pc = fragment.pc;
    warp.lanes = fragment.lanes;
    warp.resuming = fragment.wait.kind != Wait::Kind::none && fragment.wait.kind != Wait::Kind::gather &&
                    fragment.wait.kind != Wait::Kind::tensor_registers;
    warp.wait = fragment.wait;
    fragment.wait = {};
}

void merge(Warp& warp) {
    auto& fragments = warp.fragments;
    for (size_t i = 0; i < fragments.size(); ++i)
        for (size_t j = i + 1; j < fragments.size();) {
            const auto may = [](const Fragment& f) {
                return f.wait.kind == Wait::Kind::none || f.wait.kind == Wait::Kind::gather;
            };
            const bool apart = warp.drifting && fragments[i].wait.kind == Wait::Kind::none &&
                               fragments[j].wait.kind == Wait::Kind::none;
            if (fragments[i].pc == fragments[j].pc && may(fragments[i]) && may(fragments[j]) && !apart) {
                fragments[i].lanes |= fragments[j].lanes;
                fragments[i].wait = {};
                fragments[i].turns = 0;
                fragments.erase(fragments.begin() + long(j));
            } else {
                ++j;
            }
        }
}

int choose_fragment(const Warp& warp) {
    if (warp.drifting && warp.current < warp.fragments.size() && runnable(warp, warp.fragments[warp.current]))
        return int(warp.current);
    int best = -1;
    for (size_t i = 0; i < warp.fragments.size(); ++i)
        if (runnable(warp, warp.fragments[i])) {
            const auto order = [&](size_t f) { return std::pair(warp.fragments[f].turns, warp.fragments[f].pc); };
            if (best < 0 || order(i) < order(size_t(best))) best = int(i);
        }
    return best;
}

void release_warp_syncs(Warp& warp) {
    for (auto& fragment : warp.fragments) {
        if (fragment.wait.kind != Wait::Kind::gather) continue;
        const Instruction& in = warp.entry->code[fragment.pc];
        if (in.gather != Gather::members || in.d.present || in.e.present) continue;
        const uint32_t members = warp.row<uint32_t>(in.x)[std::countr_zero(fragment.lanes)] & warp.alive();
        uint32_t standing = 0;
        for (const auto& other : warp.fragments) {
            const Instruction& there = warp.entry->code[other.pc];
            if (other.wait.kind == Wait::Kind::gather && there.gather == Gather::members && !there.d.present &&
                !there.e.present)
                standing |= other.lanes;
        }
        if ((members & ~standing) == 0) {
            for (auto& other : warp.fragments)
                if (other.lanes & members && other.wait.kind == Wait::Kind::gather) {
                    ++other.pc;
                    other.wait = {};
                }
            lanes_met(warp, members);
            return;
        }
    }
}

constexpr unsigned kTurnsToDrift = 4;  // of so many turns of a warp, in one its lanes drift apart

void maybe_drift(Warp& warp, std::mt19937_64& random) {
    warp.drifting = random() % kTurnsToDrift == 0;
    if (!warp.drifting) return;
    const size_t chosen = random() % warp.fragments.size();
    Fragment& fragment = warp.fragments[chosen];
    warp.current = chosen;
    const uint32_t ahead = fragment.lanes & uint32_t(random());
    if (fragment.wait.kind != Wait::Kind::none || ahead == 0 || ahead == fragment.lanes) return;
    Fragment behind = fragment;
    behind.lanes &= ~ahead;
    fragment.lanes = ahead;
    warp.fragments.push_back(behind);
}

Gathered gather(Warp& warp, const Instruction& in, uint32_t lanes) {
    if (in.gather == Gather::warp) {
        if (lanes == warp.alive()) return Gathered::yes;
        if (lanes == 0) return Gathered::skip;
        if (lanes != warp.lanes)
            stop(*warp.cluster, "convergence",
                 "an .aligned instruction has a guard that differs between the lanes of the warp", &warp);
        return Gathered::no;
    }
    if (lanes == 0) return Gathered::skip;
    const uint32_t members = warp.row<uint32_t>(in.x)[std::countr_zero(lanes)];
    if (!(members >> std::countr_zero(lanes) & 1))
        stop(*warp.cluster, "convergence",
             concat("lane ", std::countr_zero(lanes), " is not in its own member mask ", hex(members)), &warp);
    return members & warp.alive() & ~lanes ? Gathered::no : Gathered::yes;
}

}  // namespace deep_gemm::simulator
