// tcgen05.alloc, dealloc and relinquish_alloc_permit.
#include <bit>

#include "../../../util/require.hpp"
#include "tensor_memory.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr uint32_t kFewestColumns = 32;
constexpr uint32_t kPair = 1;
constexpr const char* kKind = "tensor memory";

bool is_allowed(uint32_t columns) {
    return columns >= kFewestColumns && columns <= kTensorColumns && std::has_single_bit(columns);
}

/// The first column of so many free ones; none: kTensorColumns.
uint32_t find_free(const TensorMemory& memory, uint32_t columns) {
    for (uint32_t first = 0; first + columns <= kTensorColumns; first += kFewestColumns) {
        bool free = true;
        for (uint32_t column = first; column < first + columns; ++column) free &= memory.owner[column] == 0;
        if (free) return first;
    }
    return kTensorColumns;
}

Step alloc(Warp& w, const Instruction& in, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    Cta& cta = *w.cta;
    const bool pair = in.flags & kPair;
    const unsigned lane = std::countr_zero(lanes);
    const uint32_t columns = w.row<uint32_t>(in.b)[lane];
    if (group_ctas(w, pair).empty()) return Step::next;
    if (w.resuming && w.wait.kind == Wait::Kind::tensor_pair) return Step::next;
    if (!is_allowed(columns))
        stop(cluster, kKind, concat("tcgen05.alloc of ", columns, " columns: a power of two from 32 to 512 expected"),
             &w);
    TensorMemory& memory = tensor_memory(cta);
    if (!memory.may_allocate)
        report(cluster, kKind, "tcgen05.alloc after tcgen05.relinquish_alloc_permit of the same block", &w);
    const uint32_t first = find_free(memory, columns);
    if (first == kTensorColumns) {
        w.wait = {};
        w.wait.kind = Wait::Kind::tensor_columns;
        w.wait.value = columns;
        return Step::blocked;
    }
    const Place place =
        shared_place(w, uint32_t(read_any(w, in.a, lane) + uint64_t(in.displacement)), 4, true, "tcgen05.alloc");
    if (!place.cta) return Step::next;
    const uint16_t number = ++memory.allocations;
    memory.groups[number] = pair ? 2 : 1;
    for (uint32_t column = first; column < first + columns; ++column) memory.owner[column] = number;
    shared_write(w, lane, cta, place.offset, 4, true);
    std::memcpy(place.data, &first, 4);
    learn(w, kAllLanes, Agent(w.agent + lane), w.tick);  // all lanes together have written it
    tick(w);
    ++cluster.progress;
    if (!pair || !cluster.by_hardware()) return Step::next;
    // The blocks of a pair allocate together: on a machine, nobody goes on before both have.
    if (pair_has_allocated(w, ++memory.pair_allocations)) return Step::next;
    w.wait = {};
    w.wait.kind = Wait::Kind::tensor_pair;
    w.wait.value = memory.pair_allocations;
    return Step::blocked;
}

// All that touched these columns must be known to be over.
void check_idle(Warp& w, const Instruction& in, Cta& cta, uint32_t first, uint32_t columns) {
    TensorWork& work = tensor_work(w);
    TensorAccess access = tensor_access(w, in, kAllLanes, Agent(~0u), 1, "tcgen05.dealloc");
    access.known = access.at.seen;  // that tcgen05 itself sees it is no matter any more
    for (const Warp* other : w.cluster->warps) {
        if (!other->tensor) continue;
        const auto learn = [&](Agent agent) {
            if (agent >= access.known.size()) access.known.resize(agent + 1);
            access.known[agent] = std::max(access.known[agent], access.at.of(Agent(agent + 1)));
        };
        learn(other->tensor->loads);
        learn(other->tensor->stores);
    }
    access.loads_waited = work.loads_waited, access.stores_waited = work.stores_waited;
    tensor_write(access, cta, {0, kTensorLanes, first, columns});
}

Step dealloc(Warp& w, const Instruction& in, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    Cta& cta = *w.cta;
    TensorMemory& memory = tensor_memory(cta);
    const unsigned lane = std::countr_zero(lanes);
    const uint32_t first = tensor_place(uint32_t(read_any(w, in.a, lane))).column;
    const uint32_t columns = w.row<uint32_t>(in.b)[lane];
    const uint16_t number = first < kTensorColumns ? memory.owner[first] : uint16_t(0);
    bool whole = number != 0 && first + columns <= kTensorColumns;
    for (uint32_t column = 0; whole && column < kTensorColumns; ++column)
        whole = (memory.owner[column] == number) == (column >= first && column < first + columns);
    if (!whole) {
        report(cluster, kKind,
               concat("tcgen05.dealloc of ", columns, " columns from ", first, ": no allocation is just these"), &w);
        return Step::next;
    }
    if (memory.groups[number] != (in.flags & kPair ? 2u : 1u))
        report(cluster, kKind, "tcgen05.dealloc with another cta_group than the allocation's", &w);
    check_idle(w, in, cta, first, columns);
    for (uint32_t column = first; column < first + columns; ++column) {
        memory.owner[column] = 0;
        for (uint32_t row = 0; row < kTensorLanes; ++row)
            memory.cell(row, column) = 0xffffffffu, memory.good(row, column) = 0;
        for (uint32_t at = column; at < memory.writes.size(); at += kTensorColumns) {
            memory.writes[at] = {};
            for (auto& reads : memory.reads) reads.granules[at] = {};
        }
    }
    ++cluster.progress;
    return Step::next;
}

Step relinquish(Warp& w, const Instruction&, uint32_t) {
    tensor_memory(*w.cta).may_allocate = false;
    return Step::next;
}

void need_sync_aligned(Decoder& decoder) {
    if (!decoder.mod("sync") || !decoder.mod("aligned")) decoder.error(".sync.aligned expected");
    decoder.out.gather = Gather::warp;
}

}  // namespace

bool tensor_columns_free(const Warp& warp, uint32_t columns) {
    return !warp.cta->tensor_memory || find_free(*warp.cta->tensor_memory, columns) != kTensorColumns;
}

bool pair_has_allocated(const Warp& warp, uint32_t times) {
    const Cta& other = *warp.cluster->ctas[warp.cta->rank ^ 1];
    return other.exited || (other.tensor_memory && other.tensor_memory->pair_allocations >= times);
}

void check_deallocated(Cta& cta) {
    if (!cta.tensor_memory) return;
    for (const uint16_t owner : cta.tensor_memory->owner)
        if (owner)
            return report(*cta.cluster, kKind,
                          concat("block ", cta.rank, " exits without tcgen05.dealloc of what it allocated"), nullptr);
}

void decode_tensor_alloc(Decoder& decoder) {
    Instruction& out = decoder.out;
    out.flags = take_pair(decoder) ? kPair : 0;
    need_sync_aligned(decoder);
    decoder.one_of({"shared::cta"});
    if (!decoder.mod("b32")) decoder.error(".b32 expected");
    out.a = decoder.address(decoder.node(0), out.displacement);
    out.b = decoder.source(1, Type::b32);
    decoder.set(alloc);
}

void decode_tensor_dealloc(Decoder& decoder) {
    Instruction& out = decoder.out;
    out.flags = take_pair(decoder) ? kPair : 0;
    need_sync_aligned(decoder);
    if (!decoder.mod("b32")) decoder.error(".b32 expected");
    out.a = decoder.source(0, Type::b32);
    out.b = decoder.source(1, Type::b32);
    decoder.set(dealloc);
}

void decode_tensor_permit(Decoder& decoder) {
    take_pair(decoder);
    need_sync_aligned(decoder);
    decoder.set(relinquish);
}

}  // namespace deep_gemm::simulator
