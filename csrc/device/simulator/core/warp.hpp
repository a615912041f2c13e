// A simulated warp: fragments of lanes, what they wait for, what they know, copies that they issued.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "clock.hpp"
#include "program.hpp"

namespace deep_gemm::simulator {

struct Cta;
struct Cluster;
struct LaneTouches;
struct TensorWork;

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
    uint32_t index = 0;      // in the block
    uint32_t number = 0;     // in the cluster
    Agent agent = 0;         // of lane 0 in the cluster's clocks; the other lanes' follow
    uint32_t far_agent = 0;  // of lane 0 among those of all devices, where several run together
    Agent bulk_agent = 0;    // reads of shared memory by this warp's bulk copies
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
    Clock released_by_fences;      // which relaxed operations on mbarriers behind them carry
    uint32_t fencing_lanes = 0;    // whose fences
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

}  // namespace deep_gemm::simulator
