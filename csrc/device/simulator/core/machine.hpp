// The simulated machine: a cluster that runs together, and the launch that it belongs to.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "../simulator.hpp"
#include "block.hpp"

namespace deep_gemm::simulator {

struct Dice;
struct Devices;
struct MapChanges;
struct KnownMaps;

/// Asynchronous work that has been issued and has not taken effect.
struct Event {
    std::function<void()> fire;
    const Instruction* instruction = nullptr;
    Warp* warp = nullptr;
    const char* what = "";
};

struct HazardStop {};  // thrown to leave a cluster after a hazard that ends it

/// What all blocks of a launch share.
struct LaunchState {
    const Module* module;
    const Entry* entry;
    const simulator::Launch* launch;
    Options options;
    std::vector<char> param_storage;
    char* params = nullptr;
    std::vector<Extent> extents;                          // sorted by address
    std::vector<std::pair<uint64_t, uint64_t>> writable;  // first and end address, sorted, apart from each other
    uint32_t shared_bytes = 0;                            // static + dynamic
    uint32_t cluster_shape[3] = {1, 1, 1}, cluster_size = 1;
    uint32_t clusters = 1;
    std::atomic<uint32_t> next_cluster{0};  // that begins, or is taken over by another
    std::mutex mutex;                       // guards hazards, statistics
    std::vector<Hazard> hazards;
    std::set<std::string> seen;
    Statistics statistics;
    std::map<uint32_t, std::vector<BarrierEvent>> timelines;  // by cluster
    uint64_t timeline_left_out = 0;
    std::vector<std::atomic<uint64_t>> counts;  // executed warp instructions by index
    std::shared_ptr<MapChanges> map_changes;
    std::atomic<bool> stop{false};
    Devices* devices = nullptr;  // where several run together,
    uint32_t device = 0;         // of which this one
};

/// Where the first block of a cluster stands in the grid.
void find_first_block(const LaunchState& launch, uint32_t cluster, uint32_t (&block)[3]);

/// A tensor map's address, and where a box of it begins.
using AskedBox = std::pair<uint64_t, std::array<int32_t, 5>>;

struct Cluster {
    LaunchState* launch = nullptr;
    const Module* module = nullptr;
    std::vector<std::unique_ptr<Cta>> ctas;
    std::vector<Warp*> warps;
    std::vector<std::unique_ptr<Event>> events;
    NamedBarrier cluster_barrier;
    Clock inits_arriving, inits_completed;   // what the cluster's barrier says of Warp::inits
    std::vector<uint64_t> cluster_arrivals;  // by warp: lanes arrived in this generation
    std::vector<uint64_t> cluster_waiting;   // by lane of the cluster: generation it arrived in, for wait
    Clock sync_clock;  // carried by release / acquire through memory, but what is known of other devices
    Clock far_clock;   // that, through memory that devices do not share
    size_t place_among_devices = 0;
    uint64_t progress = 0;
    uint64_t time = 0;  // stands for cycles: instructions of all warps, and what was slept with nothing else to do
    uint32_t index = 0;
    Agent next_agent = 0;
    std::shared_ptr<Dice> dice;  // of the random schedule
    Statistics statistics;
    std::vector<uint64_t> counts;
    std::set<AskedBox> asked_for;  // by prefetches, and not copied yet
    std::shared_ptr<KnownMaps> known_maps;
    std::vector<std::string> agent_names;  // of those behind the lanes
    bool checking = true;
    std::vector<BarrierEvent> timeline;
    uint64_t timeline_left_out = 0;

    /// Whether what machines are known to do passes, though the manual does not promise it.
    bool by_hardware() const { return launch->options.rules == Rules::hardware; }
    void run();
    void defer(Event event);
    void fire(size_t index);
    Agent lane_agents() const { return Agent(warps.size() * kLanes); }
    Agent new_agent(std::string name, unsigned count = 1);
    void complete_warpgroup(Cta& cta, Warpgroup& group, bool all);
};

// --- scheduler.cpp
/// Set `target` for `taken` lanes of the current fragment; the others fall through.
Step branch(Warp& warp, uint32_t taken, uint32_t target);
void exit_lanes(Warp& warp, uint32_t lanes);

// --- lanes.cpp
/// What one lane knows, its own doings included; or what was known when asynchronous work was issued.
struct View {
    static constexpr Agent kNobody = 0xffff;
    const Clock* clock;
    Agent self = kNobody, own_copies = kNobody;
    uint32_t copies_waited = 0;
    uint32_t of(Agent agent) const {
        if (agent == self) return ~0u;
        return agent == own_copies ? std::max(copies_waited, clock->of(agent)) : clock->of(agent);
    }
};
View view_of(const Warp& warp, unsigned lane);
/// All that these lanes know, and did.
Clock released(const Warp& warp, uint32_t lanes);
void release(const Warp& warp, uint32_t lanes, Clock& into);
void learn(Warp& warp, uint32_t lanes, const Clock& clock);
void learn(Warp& warp, uint32_t lanes, Agent agent, uint32_t tick);
/// Asynchronous readers may see what these lanes know of.
void fence_for_async(Warp& warp, uint32_t lanes);
/// These lanes have met: each knows what the others knew and did.
void lanes_met(Warp& warp, uint32_t lanes);
/// Tell what comes next apart from what was just released.
inline void tick(Warp& warp) { ++warp.tick; }

// --- pending_registers.cpp
/// Registers of a wgmma, and those that tcgen05.ld writes, are used before what waits for them.
void check_multiplying(Warp& warp, const Instruction& in, const Effects& effects);
void check_loading(Warp& warp, const Instruction& in, const Effects& effects);
/// The value of `from` has arrived: copies that were made of it before get it too.
void fill_copies(Warp& warp, const std::vector<PendingCopy>& copies, const Operand& from, uint64_t sequence);

/// All lanes have met: what they did to global memory is ordered.
void forget_touches(Warp& warp);  // lane_touches.cpp

// --- mbarrier.cpp
void arrive(Cluster& cluster, Cta& cta, Mbarrier& barrier, uint32_t count, const Clock* release, const Warp* warp,
            const Instruction* in);
void expect_bytes(Mbarrier& barrier, int64_t bytes);
void complete_bytes(Cluster& cluster, Cta& cta, Mbarrier& barrier, int64_t bytes);
/// The barrier at a place, checked for being initialised and visible; `remote` also asks for the fence after init.
Mbarrier* barrier_at(Cluster& cluster, Cta& cta, uint32_t offset, const View& known, const Warp* warp,
                     const Instruction* in, bool remote);
// --- bulk.cpp
bool bulk_done(const Warp& warp, const Wait& wait);
// --- small_copy.cpp
bool small_copies_done(const Warp& warp, uint32_t lane, uint32_t last);
/// What the lane that issued a cp.async has done about it, for reports.
struct SmallCopyState {
    bool is_one = false;  // the agent is a lane's copies
    bool waited_for = false;
    std::string text;  // which wait it would have taken
};
SmallCopyState small_copy_state(const Cluster& cluster, Agent agent, uint32_t number);
/// Copies of an exiting block that nobody has waited for.
void check_small_copies_ended(const Warp& warp);
// --- tensor memory
bool tensor_columns_free(const Warp& warp, uint32_t columns);
bool pair_has_allocated(const Warp& warp, uint32_t times);
/// Whether an instruction uses registers that a tcgen05.ld has yet to write.
bool uses_loading(const Warp& warp, const Effects& effects);
bool tensor_moves_done(const Warp& warp, bool stores);
uint32_t tensor_loads_done(const Warp& warp);
uint32_t tensor_loads_waited(const Warp& warp);
void check_deallocated(Cta& cta);

// --- hazards.cpp
/// Record a hazard at the current instruction of `warp` (or `instruction`). Throws HazardStop when hazards are errors.
void report(Cluster& cluster, const char* kind, const std::string& message, const Warp* warp,
            const Instruction* instruction = nullptr);
[[noreturn]] void stop(Cluster& cluster, const char* kind, const std::string& message, const Warp* warp,
                       const Instruction* instruction = nullptr);
std::string describe_warp(const Warp& warp);
std::string describe_agent(const Cluster& cluster, Agent agent);
std::string describe_barriers(const Cluster& cluster);
std::string hex(uint64_t value);

}  // namespace deep_gemm::simulator
