// Tensor memory: cells, and whether accesses to them are ordered.
#include "tensor_memory.hpp"

#include "../../../util/require.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr uint32_t kGranules = kTensorLanes / kGranuleLanes * kTensorColumns;

uint32_t granule_at(uint32_t lane, uint32_t column) { return lane / kGranuleLanes * kTensorColumns + column; }

template <class Body>
void for_granules(const TensorArea& area, Body&& body) {
    for (uint32_t lane = area.lane / kGranuleLanes * kGranuleLanes; lane < area.lane + area.lanes;
         lane += kGranuleLanes)
        for (uint32_t column = area.column; column < area.column + area.columns; ++column)
            body(granule_at(lane, column));
}

std::vector<TensorTouch>& reads_of(TensorMemory& memory, Agent agent) {
    for (auto& reads : memory.reads)
        if (reads.agent == agent) return reads.granules;
    memory.reads.push_back({agent, std::vector<TensorTouch>(kGranules)});
    return memory.reads.back().granules;
}

enum class Order { yes, no_wait, no_fence_before, no_fence_after, no };

// The tensor core executes a product behind the copies and products that were issued before it, also by other threads
// (PTX ISA 9.7.16.6.4.3, "pipelined instructions, different thread"): that these were issued must be known, not that
// they are complete.
Order order_of_issue(const TensorAccess& access, const TensorTouch& past) {
    if (access.agent != access.warp->tensor->products) return Order::no;
    for (const Warp* other : access.cluster->warps) {
        const TensorWork* issuer = other->tensor.get();
        if (!issuer || (past.agent != issuer->copies && past.agent != issuer->products)) continue;
        if (issuer->issues_fenced < access.known.size() && past.tick <= access.known[issuer->issues_fenced])
            return Order::yes;
        if (past.tick > access.at.of(issuer->issues)) return Order::no;
        if (access.cluster->by_hardware()) return Order::yes;
        return past.tick <= access.at.of(issuer->issues_fenced) ? Order::no_fence_after : Order::no_fence_before;
    }
    return Order::no;
}

// Is what `past` did ordered before this access?
Order order(const TensorAccess& access, const TensorTouch& past) {
    const TensorWork& work = *access.warp->tensor;
    if (past.tick == 0 || past.agent == access.agent) return Order::yes;
    if (past.agent == work.copies && access.agent == work.products) return Order::yes;
    if (past.agent == work.loads) return past.tick <= access.loads_waited ? Order::yes : Order::no_wait;
    if (past.agent == work.stores) return past.tick <= access.stores_waited ? Order::yes : Order::no_wait;
    if (access.cluster->by_hardware()) {
        if (past.agent == work.products && access.agent == work.copies) return Order::yes;
        if (past.tick <= access.at.of(past.agent)) return Order::yes;
    }
    if (past.agent < access.known.size() && past.tick <= access.known[past.agent]) return Order::yes;
    const Order issued = order_of_issue(access, past);
    if (issued == Order::yes) return issued;
    if (past.tick <= access.at.of(past.agent)) return Order::no_fence_after;
    if (issued != Order::no) return issued;
    for (const Warp* other : access.cluster->warps)
        if (other->tensor && (past.agent == other->tensor->loads || past.agent == other->tensor->stores) &&
            past.tick <= access.at.of(Agent(past.agent + 1)))
            return access.cluster->by_hardware() ? Order::yes : Order::no_fence_before;
    return Order::no;
}

void report_order(const TensorAccess& access, const Cta& cta, uint32_t granule, const TensorTouch& past, Order found,
                  const char* kind, const char* did, const char* does) {
    const Cluster& cluster = *access.cluster;
    const std::string place =
        concat("tensor memory of block ", cta.rank, ", lanes ", granule / kTensorColumns * kGranuleLanes,
               " and up, column ", granule % kTensorColumns);
    const std::string earlier =
        concat("\n    earlier: ", did, " by ", describe_agent(cluster, past.agent),
               past.instruction
                   ? concat(" at ", cluster.module->location(cluster.launch->entry->code[past.instruction - 1]))
                   : std::string());
    const char* why = found == Order::no_wait           ? ", but tcgen05.wait must stand between them"
                      : found == Order::no_fence_before ? ", but no tcgen05.fence::before_thread_sync followed that"
                      : found == Order::no_fence_after
                          ? ", but no tcgen05.fence::after_thread_sync followed the wait for that"
                          : ", but nothing orders it after that";
    const char* named = found == Order::no_wait ? "tensor wait" : found == Order::no ? kind : "tensor fence";
    report(*access.cluster, named, concat(place, ", is ", does, " by ", access.what, why, earlier), access.warp,
           access.instruction);
}

}  // namespace

TensorMemory::TensorMemory()
    : cells(kTensorLanes * kTensorColumns, 0xffffffffu), initialised(cells.size()), writes(kGranules) {}

TensorMemory& tensor_memory(Cta& cta) {
    if (!cta.tensor_memory) cta.tensor_memory = std::make_shared<TensorMemory>();
    return *cta.tensor_memory;
}

TensorWork& tensor_work(Warp& w) {
    if (!w.tensor) {
        w.tensor = std::make_shared<TensorWork>();
        const auto agent = [&](const char* what) {
            return w.cluster->new_agent(concat(what, " of ", describe_warp(w)));
        };
        w.tensor->products = agent("tcgen05.mma");
        w.tensor->copies = agent("tcgen05.cp");
        w.tensor->issues = agent("issue of tcgen05.mma and cp");
        w.tensor->issues_fenced = agent("issue of tcgen05.mma and cp");
        w.tensor->loads = agent("tcgen05.ld");
        w.tensor->loads_waited_agent = agent("tcgen05.ld");
        w.tensor->stores = agent("tcgen05.st");
        w.tensor->stores_waited_agent = agent("tcgen05.st");
    }
    return *w.tensor;
}

TensorAccess tensor_access(Warp& w, const Instruction& in, uint32_t lanes, Agent agent, uint32_t tick,
                           const char* what) {
    const TensorWork& work = tensor_work(w);
    return {w.cluster, &w,   &in, released(w, lanes), work.known, work.loads_waited, work.stores_waited,
            agent,     tick, what};
}

bool check_area(const TensorAccess& access, Cta& cta, const TensorArea& area) {
    TensorMemory& memory = tensor_memory(cta);
    const char* wrong = nullptr;
    if (area.lane + area.lanes > kTensorLanes || area.column + area.columns > kTensorColumns)
        wrong = "is outside of tensor memory";
    else
        for (uint32_t column = area.column; column < area.column + area.columns; ++column)
            if (!memory.owner[column]) wrong = "is not allocated";
    if (!wrong) return true;
    report(*access.cluster, "tensor memory",
           concat(access.what, " reaches lanes ", area.lane, " to ", area.lane + area.lanes - 1, ", columns ",
                  area.column, " to ", area.column + area.columns - 1, " of block ", cta.rank, ", of which a part ",
                  wrong),
           access.warp, access.instruction);
    return false;
}

void tensor_read(const TensorAccess& access, Cta& cta, const TensorArea& area) {
    TensorMemory& memory = tensor_memory(cta);
    auto& reads = reads_of(memory, access.agent);
    const uint32_t index = uint32_t(access.instruction - access.cluster->launch->entry->code.data()) + 1;
    bool reported = false;
    for_granules(area, [&](uint32_t granule) {
        const TensorTouch& past = memory.writes[granule];
        const Order found = reported ? Order::yes : order(access, past);
        if (found != Order::yes)
            report_order(access, cta, granule, past, found, "read in flight", "written", "read"), reported = true;
        reads[granule] = {access.tick, access.agent, index};
    });
}

void tensor_write(const TensorAccess& access, Cta& cta, const TensorArea& area) {
    TensorMemory& memory = tensor_memory(cta);
    const uint32_t index = uint32_t(access.instruction - access.cluster->launch->entry->code.data()) + 1;
    bool reported = false;
    for_granules(area, [&](uint32_t granule) {
        const auto check = [&](const TensorTouch& past, const char* did) {
            const Order found = reported ? Order::yes : order(access, past);
            if (found == Order::yes) return;
            report_order(access, cta, granule, past, found, "overwrite", did, "written");
            reported = true;
        };
        check(memory.writes[granule], "written");
        for (auto& reads : memory.reads) check(reads.granules[granule], "read");
        memory.writes[granule] = {access.tick, access.agent, index};
    });
}

std::vector<Cta*> group_ctas(Warp& w, bool pair) {
    if (!pair) return {w.cta};
    const uint32_t first = w.cta->rank & ~1u;
    auto& ctas = w.cluster->ctas;
    if (first + 1 >= ctas.size()) {
        report(*w.cluster, "cluster", "cta_group::2 needs a cluster with a pair of blocks", &w);
        return {};
    }
    return {ctas[first].get(), ctas[first + 1].get()};
}

namespace {

void execute_oldest(TensorWork& tensor) {
    const TensorOperation oldest = std::move(tensor.queue.front());
    tensor.queue.pop_front();
    for (const auto& [other, tick] : oldest.after)
        while (other->executed < tick && !other->queue.empty()) execute_oldest(*other);
    oldest.work();
    tensor.executed = oldest.tick;
}

void queue_operation(Warp& w, const Instruction& in, const char* what, TensorOperation operation) {
    TensorWork& tensor = tensor_work(w);
    tensor.queue.push_back(std::move(operation));
    Warp* warp = &w;
    w.cluster->defer({[warp, &tensor] {
                          // It may have been executed before its turn: a product of another warp stood behind it.
                          if (!tensor.queue.empty()) execute_oldest(tensor);
                          ++warp->cluster->progress;
                      },
                      &in, warp, what});
}

}  // namespace

void queue_tensor_work(Warp& w, const Instruction& in, const char* what, std::function<void()> work) {
    queue_operation(w, in, what, {.tick = tensor_work(w).issued, .after = {}, .work = std::move(work)});
}

void queue_tensor_product(Warp& w, const Instruction& in, const TensorAccess& access, std::function<void()> work) {
    TensorOperation product{.tick = access.tick, .after = {}, .work = std::move(work)};
    for (const Warp* other : w.cluster->warps) {
        TensorWork* issuer = other->tensor.get();
        if (!issuer || other == &w) continue;
        const uint32_t fenced = issuer->issues_fenced < access.known.size() ? access.known[issuer->issues_fenced] : 0;
        const uint32_t tick = w.cluster->by_hardware() ? access.at.of(issuer->issues) : fenced;
        if (tick == 0) continue;
        product.after.emplace_back(issuer, tick);
        tensor_work(w).executed_behind[issuer] = tick;
    }
    queue_operation(w, in, "tcgen05.mma", std::move(product));
}

uint32_t count_issued(Warp& w, unsigned lane) {
    TensorWork& work = tensor_work(w);
    const uint32_t tick = work.issued_by[lane] = ++work.issued;
    learn(w, 1u << lane, work.issues, tick);
    return tick;
}

bool take_pair(Decoder& decoder) {
    const auto group = decoder.one_of({"cta_group::1", "cta_group::2"});
    if (group.empty()) decoder.error(".cta_group::1 or .cta_group::2 expected");
    return group == "cta_group::2";
}

namespace {

void decode_tcgen05(Decoder& decoder) {
    if (decoder.mod("alloc")) return decode_tensor_alloc(decoder);
    if (decoder.mod("dealloc")) return decode_tensor_dealloc(decoder);
    if (decoder.mod("relinquish_alloc_permit")) return decode_tensor_permit(decoder);
    if (decoder.mod("ld")) return decode_tensor_load(decoder);
    if (decoder.mod("st")) return decode_tensor_store(decoder);
    if (decoder.has("wait::ld") || decoder.has("wait::st")) return decode_tensor_wait(decoder);
    if (decoder.has("fence::before_thread_sync") || decoder.has("fence::after_thread_sync"))
        return decode_tensor_fence(decoder);
    if (decoder.mod("cp")) return decode_tensor_cp(decoder);
    if (decoder.mod("commit")) return decode_tensor_commit(decoder);
    if (decoder.mod("mma")) return decode_tensor_mma(decoder);
    decoder
        .error("tcgen05 has alloc, dealloc, relinquish_alloc_permit, mma, cp, ld, st, commit, waits and fences here");
}

}  // namespace

void add_tensor_memory(DecodeTable& table) { table["tcgen05"] = decode_tcgen05; }

}  // namespace deep_gemm::simulator
