// A simulated block: its warps, barriers, and shared memory with what is known of each word.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "warp.hpp"

namespace deep_gemm::simulator {

struct TensorMemory;

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

}  // namespace deep_gemm::simulator
