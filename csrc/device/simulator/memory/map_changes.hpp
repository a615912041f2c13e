// Tensor maps in global memory that a launch changes itself, and who may use what they have become.
//
// A change is an ordinary write, and copies read maps through a proxy of their own. So whoever has changed a map
// publishes that (fence.proxy.tensormap release, or tensormap.cp_fenceproxy, which writes and publishes), and whoever
// uses it has acquired it since (fence.proxy.tensormap acquire), or has met a lane that has.
#pragma once

#include <map>
#include <mutex>

#include "../core/devices.hpp"
#include "../core/machine.hpp"
#include "tensor_map.hpp"

namespace deep_gemm::simulator {

struct ChangedMap {
    uint32_t changes = 0, published = 0;  // how many; behind how many of them stands a release fence
    Scope scope = Scope::sys;             // of that fence
    uint32_t cluster = 0, block = 0;      // whose lane made the last change
    Agent lane = 0;
    uint32_t tick = 0;
    const Instruction* instruction = nullptr;
    uint32_t checked = 0;  // up to which change it is known to keep the rules of maps
};

/// Of a launch, by address.
struct MapChanges {
    std::mutex mutex;
    std::map<uint64_t, ChangedMap> maps;
    std::atomic<bool> any{false};
};

/// Of a cluster, by address.
struct KnownMaps {
    std::map<uint64_t, Agent> acquired;                       // an agent whose ticks are changes
    std::map<uint64_t, std::map<Agent, uint32_t>> in_stores;  // by agent of a warp's copies: the last that reads it
};

/// A lane has written to a map.
void map_changed(Warp& warp, unsigned lane, uint64_t address);
/// A lane has stored these bytes to global memory: they may be a map, or a part of one.
void note_stored_map(Warp& warp, unsigned lane, uint64_t address, const char* data, uint32_t bytes);
/// What these lanes know of is published.
void publish_maps(Warp& warp, uint32_t lanes, Scope scope);
void acquire_map(Warp& warp, uint32_t lanes, uint64_t address, Scope scope);
/// Reports the use of a map whose last change the lane may not see, or that is none any more.
void check_map_use(Warp& warp, unsigned lane, uint64_t address, const StoredTensorMap& map);
/// A store reads the map until its lane has waited for it.
void map_read_by_store(Warp& warp, uint64_t address, uint32_t sequence);

}  // namespace deep_gemm::simulator
