// Tensor memory of SM100: 128 lanes by 512 columns of 32 bits a block, its allocation, and who touched it last.
//
// An address has the lane in its upper 16 bits and the column in the lower ones. What is kept of accesses is kept by
// granules of 16 lanes and one column.
#pragma once

#include "../core/execute.hpp"
#include "../memory/memory.hpp"

namespace deep_gemm::simulator {

constexpr uint32_t kTensorLanes = 128, kTensorColumns = 512, kGranuleLanes = 16;

struct TensorPlace {
    uint32_t lane = 0, column = 0;
};
inline TensorPlace tensor_place(uint32_t address) { return {address >> 16, address & 0xffff}; }

struct TensorArea {
    uint32_t lane, lanes, column, columns;
};

/// The last access of one kind to a granule.
struct TensorTouch {
    uint32_t tick = 0;
    Agent agent = 0;
    uint32_t instruction = 0;  // index + 1
};

struct TensorReads {
    Agent agent = 0;
    std::vector<TensorTouch> granules;
};

struct TensorMemory {
    std::vector<uint32_t> cells;          // lane after lane
    std::vector<uint8_t> initialised;     // by cell
    uint16_t owner[kTensorColumns] = {};  // 0: free; otherwise the number of the allocation
    uint16_t allocations = 0;
    uint32_t pair_allocations = 0;        // that came to their end or wait for the other block
    std::map<uint16_t, uint32_t> groups;  // cta_group by allocation
    bool may_allocate = true;             // until the permit is given back
    std::vector<TensorTouch> writes;
    std::vector<TensorReads> reads;

    TensorMemory();
    uint32_t& cell(uint32_t lane, uint32_t column) { return cells[lane * kTensorColumns + column]; }
    uint8_t& good(uint32_t lane, uint32_t column) { return initialised[lane * kTensorColumns + column]; }
};

struct TensorWork;

/// A product, copy or commit that has been issued.
struct TensorOperation {
    uint32_t tick;                                        // of the last product or copy of its warp, itself included
    std::vector<std::pair<TensorWork*, uint32_t>> after;  // other warps' operations that it is executed behind
    std::function<void()> work;
};

/// What a warp has issued to the tensor core and to its tensor memory.
struct TensorWork {
    // Products and copies of a warp are executed in order; a copy is not ordered behind the products before it.
    Agent products = 0, copies = 0;
    // Products are executed behind other warps' copies and products too, where these were issued before: the first
    // agent knows what was issued, the second what a fence::before_thread_sync has let others rely on.
    Agent issues = 0, issues_fenced = 0;
    uint32_t issued = 0, executed = 0;
    uint32_t issued_by[kLanes] = {};  // the last of each thread, which a commit of that thread waits for
    std::deque<TensorOperation> queue;
    std::map<TensorWork*, uint32_t> executed_behind;  // other warps' operations that its products were executed behind
    // Loads and stores of registers. The second agent of each knows what was waited for, the first what a
    // fence::before_thread_sync has let others rely on.
    Agent loads = 0, loads_waited_agent = 0, stores = 0, stores_waited_agent = 0;
    uint32_t loads_issued = 0, loads_done = 0, loads_waited = 0;
    uint32_t stores_issued = 0, stores_done = 0, stores_waited = 0;
    std::vector<uint32_t> known;  // by agent: what fence::after_thread_sync has let this warp rely on
};

TensorWork& tensor_work(Warp& w);
/// The block's tensor memory; made when it is first needed.
TensorMemory& tensor_memory(Cta& cta);

/// An access to tensor memory; `at` and `known` are those of its issue.
struct TensorAccess {
    Cluster* cluster;
    const Warp* warp;
    const Instruction* instruction;
    Clock at;
    std::vector<uint32_t> known;
    uint32_t loads_waited, stores_waited;  // of the warp itself
    Agent agent;
    uint32_t tick;
    const char* what;
};
TensorAccess tensor_access(Warp& w, const Instruction& in, uint32_t lanes, Agent agent, uint32_t tick,
                           const char* what);

/// Whether all of it is allocated; reports what is not.
bool check_area(const TensorAccess& access, Cta& cta, const TensorArea& area);
/// Check against what others do there, and note the access.
void tensor_read(const TensorAccess& access, Cta& cta, const TensorArea& area);
void tensor_write(const TensorAccess& access, Cta& cta, const TensorArea& area);

/// The blocks that an instruction works on: its own, or the pair. Empty (after a report) where there is no pair.
std::vector<Cta*> group_ctas(Warp& w, bool pair);

/// Execute, in the order of issue, behind what the warp has issued before.
void queue_tensor_work(Warp& w, const Instruction& in, const char* what, std::function<void()> work);
/// The same of a product, which is executed behind what other warps are known to have issued before it, too.
void queue_tensor_product(Warp& w, const Instruction& in, const TensorAccess& access, std::function<void()> work);
/// Note that a lane has issued a product or copy; its number.
uint32_t count_issued(Warp& w, unsigned lane);

/// .cta_group::1 or ::2.
bool take_pair(Decoder& decoder);

// What decodes each instruction: tensor_allocation.cpp, tensor_moves.cpp, tensor_copies.cpp, tensor_products.cpp.
void decode_tensor_alloc(Decoder& decoder);
void decode_tensor_dealloc(Decoder& decoder);
void decode_tensor_permit(Decoder& decoder);
void decode_tensor_load(Decoder& decoder);
void decode_tensor_store(Decoder& decoder);
void decode_tensor_wait(Decoder& decoder);
void decode_tensor_fence(Decoder& decoder);
void decode_tensor_cp(Decoder& decoder);
void decode_tensor_commit(Decoder& decoder);
void decode_tensor_mma(Decoder& decoder);

}  // namespace deep_gemm::simulator
