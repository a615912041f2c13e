// Address spaces, bounds, and the shadow of shared memory that finds races and uninitialised reads.
#pragma once

#include "../core/machine.hpp"

namespace deep_gemm::simulator {

/// The kind of a hazard between lanes of one warp.
constexpr const char* kWarpSync = "warp sync";

enum class Space : uint32_t { generic, shared_cta, shared_cluster, global, local, param };

/// Where an address leads. `cta` is set for shared memory, with the offset in it.
struct Place {
    char* data = nullptr;
    Cta* cta = nullptr;
    uint32_t offset = 0;
};

/// Find and bounds-check an access of one lane. A bad one is reported, and gives no data.
Place resolve(Warp& warp, Space space, uint64_t address, uint32_t bytes, bool write, unsigned lane);
/// A range of global memory for the copy engine; null (after a report) when it is not the launch's. Throws where
/// several devices share it.
char* global_range(Cluster& cluster, uint64_t address, uint64_t bytes, bool write, const Warp* warp,
                   const Instruction* in);
const Extent* find_extent(const LaunchState& launch, uint64_t address);
/// Shared memory of the cluster by its 32-bit address; null block (after a report) when out of bounds.
Place shared_place(Warp& warp, uint32_t address, uint32_t bytes, bool own_only, const char* what);

/// memory[address] = operation(memory[address], *value), atomically; `operation` counts as in PTX's list add, min, max,
/// inc, dec, exch, cas, and, or, xor.
void reduce_memory(char* address, Type type, int operation, const char* value);

// --- shadow.cpp: the generic proxy
/// Lanes' bytes that have never been written, as a nonzero value, when reading [offset, offset + bytes).
bool shared_read(Warp& warp, unsigned lane, Cta& cta, uint32_t offset, uint32_t bytes, bool atomic = false);
void shared_write(Warp& warp, unsigned lane, Cta& cta, uint32_t offset, uint32_t bytes, bool initialised,
                  bool atomic = false);
void note_remote(Warp& warp, unsigned lane, Cta& cta, const Instruction& in);

// --- lane_touches.cpp
/// Check a load or store of global memory against what other lanes of the warp did there, and note it.
void touch_global(Warp& warp, unsigned lane, uint64_t address, uint32_t bytes, bool write);
bool is_writable(const LaunchState& launch, uint64_t address);
// --- small_copy.cpp
/// Report a store to global memory that a cp.async of the warp may still read.
void check_copied_sources(Warp& warp, unsigned lane, uint64_t address, uint32_t bytes);

// --- shadow.cpp: the asynchronous proxy. `at` is what was known when the operation was issued.
struct AsyncAccess {
    Cluster* cluster;
    const Clock* at;
    Agent agent;  // whose progress says that the access is over
    uint32_t tick;
    const Instruction* instruction;
    const Warp* warp;
    const char* what;
    uint8_t swizzle = kNoSwizzleKnown;  // of the tensor copy or of the descriptor
    bool generic = false;               // asynchronous, but through the generic proxy: no proxy fence before it
};
void async_read(const AsyncAccess& access, Cta& cta, uint32_t offset, uint32_t bytes);
void async_write(const AsyncAccess& access, Cta& cta, uint32_t offset, uint32_t bytes);
bool initialised(const Cta& cta, uint32_t offset, uint32_t bytes);
/// Of a store of several values, those that are good.
void mark_initialised(Cta& cta, uint32_t offset, uint32_t bytes);

void mark_tainted(Warp& warp, const Operand& operand, uint32_t lanes);
/// The same, but the other lanes are good now.
void set_tainted(Warp& warp, const Operand& operand, uint32_t lanes);
inline uint32_t tainted_lanes(const Warp& warp, const Operand& operand) {
    return warp.any_tainted && operand.id < warp.tainted.size() ? warp.tainted[operand.id] : 0;
}

}  // namespace deep_gemm::simulator
