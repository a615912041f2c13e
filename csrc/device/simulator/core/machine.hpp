// The simulated machine: warps, blocks, a cluster that runs together, and the launch they belong to.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "../simulator.hpp"
#include "clock.hpp"
#include "program.hpp"

namespace deep_gemm::simulator {

struct Cta;
struct Cluster;
struct LaneTouches;
struct TensorMemory;
struct TensorWork;
struct Dice;

/// Why a fragment of a warp does not run.
struct Wait {
    enum class Kind : uint8_t {
        none,
        gather,
        named_barrier,
        cluster_barrier,
        mbarrier,
        wgmma,
        bulk,
        small_copies,
        tensor_columns,
        tensor_pair,  // the other block of a pair has yet to allocate
        tensor_moves,
        tensor_registers,  // what tcgen05.ld brings
        registers,
        sleep,
        poll
    } kind = Kind::none;
    uint32_t address = 0;  // barrier number, or shared-memory address
    uint64_t value = 0;    // generation, phase, count or time waited for
    uint32_t lane = 0;
    bool latched = false;    // the condition came true once; it may be false again by now
    bool timed_out = false;  // a try_wait gives up
};

/// Lanes of one warp that share a program counter. A warp has one of these until it diverges.
struct Fragment {
    uint32_t pc = 0;
    uint32_t lanes = 0;
    Wait wait;
    uint32_t turns = 0;  // times it used up its budget since it last met other lanes
};

/// Bulk copies of one thread that are not waited for yet.
struct BulkGroups {
    struct Group {
        uint32_t reads_left = 0, writes_left = 0;
        std::vector<uint32_t> sequences;  // not waited for
    };
    std::shared_ptr<Group> open;
    std::deque<std::shared_ptr<Group>> committed;
};

/// What cp.async (not bulk) of one warp is about. An instruction is one copy, of the lanes that execute it.
struct SmallCopies {
    struct Arrival {  // at an mbarrier, once the lane's copies up to `last` have ended
        uint32_t lane, last;
        Cta* cta;
        uint32_t barrier_offset;
        Clock known;
        const Instruction* instruction;
    };
    struct Source {  // global memory that the launch may write, until the lane has waited
        uint32_t lane, number;
        uint64_t address;
        uint32_t bytes;
        const Instruction* instruction;
    };
    struct Latest {  // copy of a lane
        uint32_t number = 0;
        const Instruction* instruction = nullptr;
    };
    Agent agent = 0;  // of lane 0's copies; the other lanes' follow
    uint32_t issued = 0;
    Latest latest[kLanes];
    std::map<uint32_t, uint32_t> in_flight;             // lanes by number
    uint32_t waited[kLanes] = {}, fenced[kLanes] = {};  // up to where each lane itself knows its own
    std::deque<uint32_t> groups[kLanes];  // the last copy of each group that is committed and not waited for
    std::vector<Arrival> arrivals;
    std::vector<Source> sources;
};

/// What these lanes of a warp know of others. What each has done itself it knows besides.
struct Knowledge {
    uint32_t lanes;
    Clock clock;
};

/// A register that a plain move copied from one whose value had not arrived. The compiler names one register twice so:
/// in the machine code nothing is read, and the copy is what arrives.
struct PendingCopy {
    Operand from, to;
    uint32_t lanes;
    uint64_t sequence;  // of the wgmma or tcgen05.ld that brings the value, + 1
};

struct Warp {
    Cta* cta = nullptr;
    Cluster* cluster = nullptr;
    const Entry* entry = nullptr;
    uint32_t index = 0;    // in the block
    uint32_t number = 0;   // in the cluster
    Agent agent = 0;       // of lane 0 in the cluster's clocks; the other lanes' follow
    Agent bulk_agent = 0;  // reads of shared memory by this warp's bulk copies
    char* bank[3] = {};
    std::vector<char> registers, warp_values;
    std::vector<char> local;  // local memory, lane after lane
    std::vector<Fragment> fragments;
    size_t current = 0;
    bool drifting = false;       // the random schedule lets its lanes run apart
    uint32_t pc = 0, lanes = 0;  // of the current fragment while it runs
    bool resuming = false;       // the current instruction is being called again after it blocked
    Wait wait;                   // filled by a handler that blocks; kept for it when it is called again
    uint32_t exited = 0, created = 0;
    uint32_t carry = 0;  // CC.CF of the lanes
    uint64_t progress_seen = ~uint64_t(0);
    uint64_t executed = 0;

    // wgmma
    uint64_t wgmma_issued = 0, wgmma_waited = 0;  // instructions
    std::deque<uint64_t> wgmma_groups;            // last instruction of each open group
    std::vector<uint64_t> pending_register;       // by register: wgmma that still uses it (sequence + 1)
    std::vector<uint64_t> written_register;       // by register: when an ordinary instruction last wrote it
    std::vector<PendingCopy> multiplying_copies;
    std::shared_ptr<TensorWork> tensor;
    std::vector<uint64_t> loading_register;  // by register: the last tcgen05.ld that writes it
    std::vector<PendingCopy> loading_copies;
    uint64_t wgmma_fence_time = 0;
    bool wgmma_seen = false;

    // checks
    uint32_t tick = 1;                                  // dates what its lanes do
    std::vector<std::unique_ptr<Knowledge>> knowledge;  // one, until lanes learn different things
    Knowledge* known_by[kLanes] = {};
    uint32_t fenced[kLanes] = {};  // up to where a proxy fence of the lane covers what it did itself
    Clock inits;                   // mbarrier.init that a fence.mbarrier_init orders before this warp's next steps
    std::shared_ptr<LaneTouches> global_touches;  // of memory that the launch may write
    std::vector<uint32_t> tainted;  // by register: lanes whose value comes from uninitialised shared memory
    bool any_tainted = false;
    uint32_t registers_per_thread = 0;
    bool registers_known = false;  // a setmaxnreg has set them
    std::unique_ptr<BulkGroups> bulk[kLanes];
    uint32_t bulk_sequence = 0;
    std::set<uint32_t> bulk_open;  // sequence numbers not waited for
    std::unique_ptr<SmallCopies> small_copies;

    template <class T>
    T* row(const Operand& operand) const {
        return reinterpret_cast<T*>(bank[static_cast<int>(operand.bank)] + operand.offset);
    }
    uint32_t& mask(const Operand& operand) const {
        return *reinterpret_cast<uint32_t*>(bank[static_cast<int>(operand.bank)] + operand.offset);
    }
    uint32_t predicate(const Operand& operand) const { return operand.negated ? ~mask(operand) : mask(operand); }
    uint32_t alive() const { return created & ~exited; }
    const Instruction& instruction() const { return entry->code[pc]; }
};

struct Mbarrier {
    uint32_t address = 0;  // offset in the block's shared memory
    uint32_t expected = 0, pending = 0;
    int64_t bytes = 0;   // still to come; negative when they came before they were expected
    uint64_t phase = 0;  // completed phases
    Agent agent = 0;     // writes of copies are known to whoever has seen this agent's phase
    Clock arriving, completed;
    Agent init_agent = 0;
    uint32_t init_tick = 0;
    Warp* init_warp = nullptr;
    uint32_t last_write = 0;  // tick of the last copy that completed on it
    const Instruction* last_copy = nullptr;
    bool init_fenced = false;
};

struct NamedBarrier {
    uint32_t expected = 0, arrived = 0;  // threads
    uint64_t generation = 0;
    uint32_t votes = 0, result = 0;  // of bar.red: threads whose predicate holds, now and in the last generation
    Clock arriving, completed;
    std::vector<std::string> who;
};

constexpr uint8_t kNoSwizzleKnown = 0xff;

/// What happened last to each 4 bytes of shared memory.
struct WordState {
    uint32_t tick = 0;
    Agent agent = 0;
    uint8_t generic : 1 = 0;  // written through the generic proxy: an asynchronous reader needs a fence
    uint8_t part : 1 = 0;     // the write was narrower than the word
    uint8_t atomic : 1 = 0;
    uint8_t small_copy : 1 = 0;         // by cp.async
    uint8_t initialised : 4 = 0;        // by byte
    uint8_t swizzle = kNoSwizzleKnown;  // of the tensor copy that wrote it
    uint32_t instruction = 0;           // index + 1, for reports
};

/// Reads of shared memory by one asynchronous agent.
struct ReaderSlot {
    Agent agent = 0;
    std::vector<uint32_t> ticks;         // by 16-byte granule: tick of the last read
    std::vector<uint8_t> words;          // which of the granule's words it read
    std::vector<uint32_t> instructions;  // by granule: index + 1
};

constexpr uint32_t kPageWords = 256, kPageBytes = 4 * kPageWords;

/// Reads of a page of shared memory by the lanes of one warp.
struct ReadPage {
    uint32_t newest[kPageWords / 4] = {};  // by granule of 16 bytes: tick of the last read
    uint32_t ticks[kPageWords] = {};       // by word: when `lanes` read it
    uint32_t lanes[kPageWords] = {};
    uint32_t instructions[kPageWords] = {};  // index + 1
    bool part[kPageWords] = {};              // some read was narrower than the word
};

struct WarpReads {
    uint32_t warp = 0;  // its number in the cluster
    std::vector<std::unique_ptr<ReadPage>> pages;
};

struct WgmmaOperation {
    const Instruction* instruction = nullptr;
    uint64_t descriptor_a = 0, descriptor_b = 0;
    bool accumulate[4] = {};
    uint32_t arrived = 0;  // warps of the group
    Clock clock;
};

struct Warpgroup {
    std::deque<WgmmaOperation> queue;  // front is the oldest not executed
    uint64_t executed = 0;
    Agent agent = 0;
};

struct Cta {
    Cluster* cluster = nullptr;
    uint32_t rank = 0;
    uint32_t id[3] = {};
    uint32_t linear = 0;
    std::vector<char> shared;  // from address 0; the first kReservedShared bytes are not to be touched
    std::vector<std::unique_ptr<Warp>> warps;
    std::vector<Warpgroup> warpgroups;
    NamedBarrier barriers[16];
    std::vector<std::unique_ptr<Mbarrier>> mbarriers;
    std::vector<int32_t> mbarrier_at;  // by address / 8: index into mbarriers, -1 none
    std::vector<WordState> words;
    std::vector<ReaderSlot> readers;
    std::vector<WarpReads> warp_readers;
    uint32_t free_registers = 0;
    uint32_t live_warps = 0;
    std::vector<uint32_t> remote_access;  // by agent: tick of its last access to this block from outside
    std::vector<uint32_t> remote_instruction;
    Clock exit_clock;
    bool exited = false;
    std::shared_ptr<TensorMemory> tensor_memory;
    std::map<Agent, uint32_t> tensor_users;  // the last tcgen05.mma or cp of each that reads or writes this block

    Mbarrier* find_mbarrier(uint32_t offset) {
        if (offset % 8 || offset / 8 >= mbarrier_at.size() || mbarrier_at[offset / 8] < 0) return nullptr;
        return mbarriers[mbarrier_at[offset / 8]].get();
    }
};

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
    std::vector<std::atomic<uint64_t>> counts;  // executed warp instructions by index
    std::atomic<bool> stop{false};
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
    Clock sync_clock;                        // carried by release / acquire through memory
    uint64_t progress = 0;
    uint64_t time = 0;  // stands for cycles: instructions of all warps, and what was slept with nothing else to do
    uint32_t index = 0;
    Agent next_agent = 0;
    std::shared_ptr<Dice> dice;  // of the random schedule
    Statistics statistics;
    std::vector<uint64_t> counts;
    std::set<AskedBox> asked_for;          // by prefetches, and not copied yet
    std::vector<std::string> agent_names;  // of those behind the lanes
    bool checking = true;

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
