// Hazards in words: where, who, and what state the barriers and warps are in.
#include <cstdio>

#include "../../../util/require.hpp"
#include "execute.hpp"

namespace deep_gemm::simulator {

std::string hex(uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

std::string describe_warp(const Warp& warp) {
    const Cta& cta = *warp.cta;
    std::string text = concat("warp ", warp.index, " of block ", cta.id[0]);
    if (cta.id[1] || cta.id[2]) text += concat(",", cta.id[1], ",", cta.id[2]);
    if (cta.cluster->ctas.size() > 1) text += concat(" (rank ", cta.rank, ")");
    return text;
}

std::string describe_agent(const Cluster& cluster, Agent agent) {
    if (agent < cluster.lane_agents())
        return concat("lane ", agent % kLanes, " of ", describe_warp(*cluster.warps[agent / kLanes]));
    return cluster.agent_names[agent - cluster.lane_agents()];
}

namespace {

std::string describe_wait(const Warp& warp, const Fragment& fragment) {
    const Wait& wait = fragment.wait;
    switch (wait.kind) {
        case Wait::Kind::none:
            return "can run";
        case Wait::Kind::gather:
            return concat("waits for the other lanes of its warp (", hex(warp.alive() & ~fragment.lanes), ")");
        case Wait::Kind::named_barrier: {
            const auto& barrier = warp.cta->barriers[wait.address];
            std::string text = concat("waits at barrier ", wait.address, ": ", barrier.arrived, " of ",
                                      barrier.expected, " threads are there");
            return text;
        }
        case Wait::Kind::cluster_barrier:
            return "waits at the cluster barrier";
        case Wait::Kind::mbarrier:
            return concat("waits for parity ", wait.value, " of mbarrier ", hex(wait.address));
        case Wait::Kind::wgmma:
            return concat("waits for wgmma ", wait.value, " of its warpgroup, which has executed ",
                          warp.cta->warpgroups[warp.index / 4].executed);
        case Wait::Kind::bulk:
            return "waits for its bulk copies";
        case Wait::Kind::small_copies:
            return concat("waits for its cp.async up to the ", wait.value, "th");
        case Wait::Kind::tensor_columns:
            return concat("waits for ", wait.value, " columns of tensor memory");
        case Wait::Kind::tensor_pair:
            return "waits for the tcgen05.alloc of the other block of its pair";
        case Wait::Kind::tensor_registers:
            return "waits for what its tcgen05.ld brings";
        case Wait::Kind::tensor_moves:
            return wait.value ? "waits for its tcgen05.st" : "waits for its tcgen05.ld";
        case Wait::Kind::registers:
            return concat("waits for ", wait.value, " registers, ", warp.cta->free_registers, " are free");
        case Wait::Kind::sleep:
            return "sleeps";
        case Wait::Kind::poll:
            return "polls";
    }
    return "";
}

}  // namespace

std::string describe_barriers(const Cluster& cluster) {
    std::string text;
    for (const auto& cta : cluster.ctas) {
        for (const auto& barrier : cta->mbarriers)
            if (cta->find_mbarrier(barrier->address) == barrier.get())
                text += concat("\n    block ", cta->id[0], " mbarrier ", hex(barrier->address), ": phase ",
                               barrier->phase, ", ", barrier->pending, " of ", barrier->expected, " arrivals missing",
                               barrier->bytes ? concat(", ", barrier->bytes, " bytes to come") : std::string());
        for (unsigned i = 0; i < 16; ++i)
            if (cta->barriers[i].arrived) {
                text += concat("\n    block ", cta->id[0], " barrier ", i, ": ", cta->barriers[i].arrived, " of ",
                               cta->barriers[i].expected, " threads:");
                for (const auto& who : cta->barriers[i].who) text += " " + who + ",";
                text.pop_back();
            }
    }
    return text;
}

namespace {

// Warps of a block in the same state share a line.
std::string describe_warps(const Cluster& cluster) {
    std::string text;
    for (const auto& cta : cluster.ctas) {
        std::vector<std::pair<std::string, std::string>> groups;  // state, warps in it
        const auto add = [&](const std::string& state, const std::string& who) {
            for (auto& group : groups)
                if (group.first == state) {
                    group.second += ", " + who;
                    return;
                }
            groups.emplace_back(state, who);
        };
        for (const auto& warp : cta->warps) {
            if (warp->fragments.empty()) add("exited", std::to_string(warp->index));
            for (const auto& fragment : warp->fragments)
                add(concat(describe_wait(*warp, fragment), "\n        at ",
                           cluster.module->location(warp->entry->code[fragment.pc])),
                    concat(warp->index,
                           fragment.lanes == kAllLanes ? std::string() : concat(" (lanes ", hex(fragment.lanes), ")")));
        }
        for (const auto& [state, who] : groups) text += concat("\n    block ", cta->id[0], " warps ", who, ": ", state);
    }
    return text;
}

// What the message says of the access before, whichever lane it was by.
std::string earlier_access(const std::string& message) {
    const size_t start = message.find("earlier: ");
    if (start == std::string::npos) return "";
    std::string text = message.substr(start);
    const size_t lane = text.find(" by lane "), end = text.find(" of ", lane);
    return lane == std::string::npos ? text : text.erase(lane, end - lane);
}

void record(Cluster& cluster, const char* kind, const std::string& message, const Warp* warp, const Instruction* in,
            bool everything) {
    if (!in && warp) in = &warp->instruction();
    LaunchState& launch = *cluster.launch;
    // One report for each kind and place: a broken loop would repeat itself for ever.
    const std::string key = concat(kind, in ? in->line : 0, earlier_access(message));
    std::string text =
        launch.devices ? concat(kind, ": on device ", launch.device, ": ", message) : concat(kind, ": ", message);
    if (in) text += concat("\n    at ", cluster.module->location(*in));
    if (warp)
        text += concat("\n    by ", describe_warp(*warp),
                       warp->lanes && warp->lanes != kAllLanes ? concat(" lanes ", hex(warp->lanes)) : std::string());
    if (everything) text += describe_warps(cluster);
    const std::string barriers = describe_barriers(cluster);
    if (!barriers.empty()) text += "\n    barriers:" + barriers;
    const std::lock_guard lock(launch.mutex);
    if (launch.hazards.size() < 100 && launch.seen.insert(key).second)
        launch.hazards.push_back({kind, std::move(text)});
}

}  // namespace

void report(Cluster& cluster, const char* kind, const std::string& message, const Warp* warp, const Instruction* in) {
    record(cluster, kind, message, warp, in, false);
    if (cluster.launch->options.hazards == HazardMode::error) {
        cluster.launch->stop = true;
        throw HazardStop{};
    }
}

void stop(Cluster& cluster, const char* kind, const std::string& message, const Warp* warp, const Instruction* in) {
    record(cluster, kind, message, warp, in, true);
    if (cluster.launch->options.hazards == HazardMode::error) cluster.launch->stop = true;
    throw HazardStop{};
}

}  // namespace deep_gemm::simulator
