// The copy engine: cp.async.bulk, cp.async.bulk.tensor, their reductions, bulk groups, st.async, and old cp.async.
#include <cstring>

#include "../../util/require.hpp"
#include "execute.hpp"
#include "memory.hpp"
#include "tensor_map.hpp"

namespace deep_gemm::simulator {

namespace {

enum : uint32_t {
    kTensor = 1, kToShared = 2, kFromShared = 4, kMulticast = 8, kReduce = 16, kWithBarrier = 32, kOwnDestination = 64
};
constexpr unsigned kRankOf = 8, kTypeOf = 12, kOperationOf = 20;

uint32_t swizzled(uint32_t address, int swizzle) {
    constexpr uint32_t kMasks[] = {0, 1, 3, 7};
    return address ^ ((address >> 7) & kMasks[swizzle]) << 4;
}

const StoredTensorMap* find_map(Warp& w, uint64_t address, unsigned rank) {
    Cluster& cluster = *w.cluster;
    const char* data = nullptr;
    if (address % 64) {
        report(cluster, "tensor map", concat("tensor map at ", hex(address), " is not aligned to 64 bytes"), &w);
    } else if ((address & kWindowMask) == kSharedWindow) {
        report(cluster, "tensor map", "a tensor map in shared memory must be copied to global memory first", &w);
    } else {
        data = global_range(cluster, address, sizeof(StoredTensorMap), false, &w, nullptr);
    }
    const auto* map = reinterpret_cast<const StoredTensorMap*>(data);
    if (!map) return nullptr;
    if (map->magic != kTensorMapMagic) {
        report(cluster, "tensor map", concat("there is no tensor map at ", hex(address)), &w);
        return nullptr;
    }
    if (map->rank != rank) {
        report(cluster, "tensor map", concat("the tensor map has rank ", int(map->rank), ", the instruction ", rank), &w);
        return nullptr;
    }
    return map;
}

/// One box of a tensor: visits its 16-byte chunks with where they stand in global and in shared memory.
struct Box {
    StoredTensorMap map;
    int32_t at[5] = {};

    uint32_t inner_bytes() const { return map.box[0] * element(); }
    uint32_t element() const { return element_bytes(TensorMapType(map.type)); }
    uint32_t bytes() const {
        uint32_t total = inner_bytes();
        for (int i = 1; i < map.rank; ++i) total *= map.box[i];
        return total;
    }
    // body(global address of the row's first in-range byte, shared offset of row, first and last in-range byte of row)
    template <class Body> void rows(Body&& body) const {
        uint32_t index[5] = {};
        const int64_t element_size = element();
        uint32_t rows_total = 1;
        for (int i = 1; i < map.rank; ++i) rows_total *= map.box[i];
        const int64_t size0 = int64_t(map.sizes[0]);
        const int64_t first = std::max<int64_t>(0, -int64_t(at[0])), end = std::min<int64_t>(map.box[0], size0 - at[0]);
        for (uint32_t row = 0; row < rows_total; ++row) {
            bool inside = first < end;
            int64_t offset = int64_t(at[0]) * element_size;
            for (int i = 1; i < map.rank; ++i) {
                const int64_t coordinate = int64_t(at[i]) + index[i];
                inside &= coordinate >= 0 && coordinate < int64_t(map.sizes[i]);
                offset += coordinate * int64_t(map.strides[i - 1]);
            }
            body(map.address + uint64_t(offset), row * inner_bytes(), inside ? uint32_t(first * element_size) : 0u,
                 inside ? uint32_t(end * element_size) : 0u);
            for (int i = 1; i < map.rank; ++i) {
                if (++index[i] < map.box[i]) break;
                index[i] = 0;
            }
        }
    }
};

// Copies between a row and shared memory go through the swizzle 16 bytes at a time.
template <bool kToSharedMemory> void copy_row(Cta& cta, uint32_t base, int swizzle, uint32_t row, char* buffer, uint32_t bytes) {
    for (uint32_t x = 0; x < bytes; x += 16) {
        char* place = cta.shared.data() + swizzled(base + row + x, swizzle);
        const uint32_t part = std::min(16u, bytes - x);
        if (kToSharedMemory) std::memcpy(place, buffer + x, part);
        else std::memcpy(buffer + x, place, part);
    }
}

void load_box(Cta& cta, uint32_t destination, const Box& box) {
    char row_buffer[1024];
    const uint32_t inner = box.inner_bytes();
    box.rows([&](uint64_t address, uint32_t row, uint32_t first, uint32_t end) {
        std::memset(row_buffer, 0, inner);
        if (first < end) std::memcpy(row_buffer + first, reinterpret_cast<const char*>(address) + first, end - first);
        copy_row<true>(cta, destination, box.map.swizzle, row, row_buffer, inner);
    });
}

Type reduce_type(TensorMapType type) {
    switch (type) {
        case TensorMapType::bf16: return Type::bf16;
        case TensorMapType::f16: return Type::f16;
        case TensorMapType::f32: return Type::f32;
        case TensorMapType::i32: return Type::s32;
        default: return Type::none;
    }
}

// Where a mbarrier operand of a copy leads.
bool barrier_operand(Warp& w, const Operand& operand, int64_t displacement, unsigned lane, Place& place) {
    const uint64_t address = read_any(w, operand, lane) + uint64_t(displacement);
    place = shared_place(w, uint32_t(address), 8, false, "mbarrier of a copy");
    return place.cta != nullptr;
}

/// Let a copy write `bytes` at `destination` of `cta` and complete on the mbarrier at `barrier_offset` there.
void defer_arrival(Warp& w, const Instruction& in, Cta& cta, uint32_t destination, uint32_t bytes, uint32_t barrier_offset, const char* what,
                   std::function<void(Cta&, uint32_t)> write, uint8_t swizzle = kNoSwizzleKnown) {
    Cluster& cluster = *w.cluster;
    Mbarrier* barrier = barrier_at(cluster, cta, barrier_offset, w.clock, &w, nullptr, true);
    if (!barrier) return;
    auto known = std::make_shared<Clock>(w.clock);
    tick(w);  // what the warp does from here on may overtake the copy
    cluster.statistics.tma_load_bytes += bytes;
    Cta* target = &cta;
    Warp* warp = &w;
    cluster.defer({[=, &cluster, &in, write = std::move(write)] {
                       Mbarrier* now = target->find_mbarrier(barrier_offset);
                       if (!now) {
                           report(cluster, "barrier reuse", "the mbarrier of a copy is gone before the copy is complete", warp, &in);
                           return;
                       }
                       if (target->exited)
                           report(cluster, "early exit", concat("a copy arrives in block ", target->rank, ", which has exited"), warp, &in);
                       now->last_write = uint32_t(now->phase + 1);
                       now->last_copy = &in;
                       async_write({&cluster, known.get(), now->agent, now->last_write, &in, warp, what, swizzle}, *target, destination, bytes);
                       write(*target, destination);
                       complete_bytes(cluster, *target, *now, bytes);
                   },
                   &in, warp, what});
}

BulkGroups& bulk_groups(Warp& w, unsigned lane) {
    if (!w.bulk[lane]) w.bulk[lane] = std::make_unique<BulkGroups>();
    return *w.bulk[lane];
}

/// A copy out of shared memory: first it reads, which frees the buffer, then it writes.
void defer_departure(Warp& w, const Instruction& in, unsigned lane, uint32_t source, uint32_t bytes, const char* what,
                     std::function<std::vector<char>(Cta&)> read, std::function<void(std::vector<char>&)> write) {
    Cluster& cluster = *w.cluster;
    BulkGroups& groups = bulk_groups(w, lane);
    if (!groups.open) groups.open = std::make_shared<BulkGroups::Group>();
    auto group = groups.open;
    const uint32_t sequence = ++w.bulk_sequence;
    w.bulk_open.insert(sequence);
    group->sequences.push_back(sequence);
    ++group->reads_left;
    ++group->writes_left;
    cluster.statistics.tma_store_bytes += bytes;
    auto known = std::make_shared<Clock>(w.clock);
    tick(w);  // what the warp does from here on may overtake the copy
    Warp* warp = &w;
    cluster.defer({[=, &cluster, &in, read = std::move(read), write = std::move(write)] {
                       Cta& cta = *warp->cta;
                       async_read({&cluster, known.get(), warp->bulk_agent, sequence, &in, warp, what}, cta, source, bytes);
                       auto data = std::make_shared<std::vector<char>>(read(cta));
                       --group->reads_left;
                       ++cluster.progress;
                       cluster.defer({[=, &cluster] {
                                          write(*data);
                                          --group->writes_left;
                                          ++cluster.progress;
                                      },
                                      &in, warp, what});
                   },
                   &in, warp, what});
}

void check_initialised(Warp* warp, const Instruction* in, Cta& cta, uint32_t offset, uint32_t bytes) {
    if (!initialised(cta, offset, bytes))
        report(*cta.cluster, "uninitialised",
               concat("a copy to global memory reads shared memory ", hex(offset), " of block ", cta.rank, " that was never written"), warp, in);
}

int32_t coordinate(const Warp& w, const Operand& operand, unsigned lane) { return int32_t(read_any(w, operand, lane)); }

Step tensor_copy(Warp& w, const Instruction& in, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        ++cluster.statistics.tma_copies;
        const uint64_t map_address = read_any(w, in.b, lane) + uint64_t(in.displacement2);
        const StoredTensorMap* map = find_map(w, map_address, in.flags >> kRankOf & 15);
        if (!map) continue;
        Box box{*map, {}};
        for (size_t i = 0; i < in.extra->c.size(); ++i) box.at[i] = coordinate(w, in.extra->c[i], lane);
        const bool store = in.flags & kFromShared;
        if (!global_range(cluster, map->address, covered_bytes(*map), store, &w, nullptr)) continue;
        const uint32_t bytes = box.bytes();
        const Place place = shared_place(w, uint32_t(read_any(w, in.a, lane) + uint64_t(in.displacement)), bytes,
                                         store || in.flags & kOwnDestination, "tensor copy");
        if (!place.cta) continue;
        if (place.offset % 128) {
            report(cluster, "misaligned", concat("a tensor copy's shared memory address ", hex(place.offset), " is not a multiple of 128"), &w);
            continue;
        }
        if (!store) {
            Place barrier;
            if (!barrier_operand(w, in.x, in.extra->values[0], lane, barrier)) continue;
            const uint32_t mask = in.flags & kMulticast ? w.row<uint32_t>(in.c)[lane] & 0xffff : 1u << place.cta->rank;
            if (!(in.flags & kMulticast) && barrier.cta != place.cta)
                report(cluster, "barrier", "the mbarrier of a copy must be in the block it writes to", &w);
            if (mask >> cluster.ctas.size() || mask == 0)
                report(cluster, "cluster", concat("multicast mask ", hex(mask), " names blocks that a cluster of ", cluster.ctas.size(), " does not have"), &w);
            for (auto& cta : cluster.ctas)
                if (mask >> cta->rank & 1)
                    defer_arrival(w, in, *cta, place.offset, bytes, barrier.offset, "a tensor copy",
                                  [box](Cta& target, uint32_t destination) { load_box(target, destination, box); }, box.map.swizzle);
            continue;
        }
        Warp* warp = &w;
        const uint32_t source = place.offset;
        const Type type = in.flags & kReduce ? reduce_type(TensorMapType(map->type)) : Type::none;
        if (in.flags & kReduce && type == Type::none) {
            report(cluster, "tensor map", "a reduction needs a type with arithmetic", &w);
            continue;
        }
        const int operation = int(in.flags >> kOperationOf & 15);
        defer_departure(
            w, in, lane, source, bytes, "a tensor store",
            [=, &in](Cta& cta) {
                std::vector<char> data(bytes);
                const uint32_t inner = box.inner_bytes();
                box.rows([&](uint64_t, uint32_t row, uint32_t first, uint32_t end) {
                    for (uint32_t x = first / 16 * 16; x < end; x += 16)
                        check_initialised(warp, &in, cta, swizzled(source + row + x, box.map.swizzle) + std::max(first, x) - x,
                                          std::min(end, x + 16) - std::max(first, x));
                    copy_row<false>(cta, source, box.map.swizzle, row, data.data() + row, inner);
                });
                return data;
            },
            [=](std::vector<char>& data) {
                box.rows([&](uint64_t address, uint32_t row, uint32_t first, uint32_t end) {
                    char* target = reinterpret_cast<char*>(address);
                    if (first >= end) return;
                    if (type == Type::none) std::memcpy(target + first, data.data() + row + first, end - first);
                    else
                        for (uint32_t x = first; x < end; x += box.element()) reduce_memory(target + x, type, operation, data.data() + row + x);
                });
            });
    }
    return Step::next;
}

Step linear_copy(Warp& w, const Instruction& in, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        ++cluster.statistics.tma_copies;
        const uint64_t to = read_any(w, in.a, lane) + uint64_t(in.displacement), from = read_any(w, in.b, lane) + uint64_t(in.displacement2);
        const uint32_t bytes = w.row<uint32_t>(in.d)[lane];
        if (bytes % 16 || to % 16 || from % 16) {
            report(cluster, "misaligned", concat("a bulk copy of ", bytes, " bytes from ", hex(from), " to ", hex(to), ": all three must be multiples of 16"), &w);
            continue;
        }
        if (bytes == 0) continue;
        const Type type = Type(in.flags >> kTypeOf & 255);
        const int operation = int(in.flags >> kOperationOf & 15);
        Warp* warp = &w;
        if (in.flags & kToShared && !(in.flags & kFromShared)) {
            char* data = global_range(cluster, from, bytes, false, &w, nullptr);
            const Place place = shared_place(w, uint32_t(to), bytes, in.flags & kOwnDestination, "bulk copy");
            Place barrier;
            if (!data || !place.cta || !barrier_operand(w, in.x, in.extra->values[0], lane, barrier)) continue;
            const uint32_t mask = in.flags & kMulticast ? w.row<uint32_t>(in.c)[lane] & 0xffff : 1u << place.cta->rank;
            for (auto& cta : cluster.ctas)
                if (mask >> cta->rank & 1)
                    defer_arrival(w, in, *cta, place.offset, bytes, barrier.offset, "a bulk copy",
                                  [=](Cta& target, uint32_t destination) { std::memcpy(target.shared.data() + destination, data, bytes); });
        } else if (in.flags & kToShared) {  // to the shared memory of another block
            const Place source = shared_place(w, uint32_t(from), bytes, true, "bulk copy"), place = shared_place(w, uint32_t(to), bytes, false, "bulk copy");
            Place barrier;
            if (!source.cta || !place.cta || !barrier_operand(w, in.x, in.extra->values[0], lane, barrier)) continue;
            const auto known = std::make_shared<Clock>(w.clock);
            const uint32_t sequence = ++w.bulk_sequence;
            const bool reduce = in.flags & kReduce;
            defer_arrival(w, in, *place.cta, place.offset, bytes, barrier.offset, "a bulk copy", [=, &cluster, &in](Cta& target, uint32_t destination) {
                async_read({&cluster, known.get(), warp->bulk_agent, sequence, &in, warp, "a bulk copy"}, *source.cta, source.offset, bytes);
                if (!reduce) std::memcpy(target.shared.data() + destination, source.data, bytes);
                else
                    for (uint32_t x = 0; x < bytes; x += type_bytes(type))
                        reduce_memory(target.shared.data() + destination + x, type, operation, source.data + x);
            });
        } else {
            char* data = global_range(cluster, to, bytes, true, &w, nullptr);
            const Place place = shared_place(w, uint32_t(from), bytes, true, "bulk copy");
            if (!data || !place.cta) continue;
            const uint32_t source = place.offset;
            const bool reduce = in.flags & kReduce;
            defer_departure(
                w, in, lane, source, bytes, "a bulk store",
                [=, &in](Cta& cta) {
                    check_initialised(warp, &in, cta, source, bytes);
                    return std::vector<char>(cta.shared.data() + source, cta.shared.data() + source + bytes);
                },
                [=](std::vector<char>& copied) {
                    if (!reduce) std::memcpy(data, copied.data(), bytes);
                    else
                        for (uint32_t x = 0; x < bytes; x += type_bytes(type)) reduce_memory(data + x, type, operation, copied.data() + x);
                });
        }
    }
    return Step::next;
}

Step commit_group(Warp& w, const Instruction&, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        BulkGroups& groups = bulk_groups(w, std::countr_zero(left));
        groups.committed.push_back(groups.open ? std::move(groups.open) : std::make_shared<BulkGroups::Group>());
        groups.open = nullptr;
    }
    return Step::next;
}

constexpr uint32_t kReadOnly = 1;

Step wait_group(Warp& w, const Instruction& in, uint32_t lanes) {
    const size_t keep = size_t(in.displacement);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        BulkGroups& groups = bulk_groups(w, lane);
        Wait wait;
        wait.kind = Wait::Kind::bulk;
        wait.lane = lane;
        wait.value = keep;
        wait.address = in.flags & kReadOnly;
        if (!bulk_done(w, wait)) {
            w.wait = wait;
            return Step::blocked;
        }
        for (size_t i = 0; i + keep < groups.committed.size(); ++i) {
            for (const uint32_t sequence : groups.committed[i]->sequences) w.bulk_open.erase(sequence);
            groups.committed[i]->sequences.clear();
        }
        while (groups.committed.size() > keep && groups.committed.front()->writes_left == 0) groups.committed.pop_front();
    }
    w.clock.set(w.bulk_agent, w.bulk_open.empty() ? w.bulk_sequence : *w.bulk_open.begin() - 1);
    return Step::next;
}

// The copies of before Hopper: taken at once, as if each had been waited for.
Step small_copy(Warp& w, const Instruction& in, uint32_t lanes) {
    const uint32_t bytes = uint32_t(in.flags);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const uint64_t to = read_any(w, in.a, lane) + uint64_t(in.displacement), from = read_any(w, in.b, lane) + uint64_t(in.displacement2);
        const uint32_t given = in.c.present ? std::min(bytes, w.row<uint32_t>(in.c)[lane]) : bytes;
        const Place place = resolve(w, Space::shared_cta, uint32_t(to), bytes, true, lane);
        if (!place.data) continue;
        char buffer[16] = {};
        if (given) {
            const char* data = global_range(*w.cluster, from, given, false, &w, nullptr);
            if (data) std::memcpy(buffer, data, given);
        }
        shared_write(w, *place.cta, place.offset, bytes, true);
        std::memcpy(place.data, buffer, bytes);
        w.unsynced_lanes |= 1u << lane;
    }
    return Step::next;
}

Step small_arrive(Warp& w, const Instruction& in, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const Place place = shared_place(w, uint32_t(read_any(w, in.a, lane) + uint64_t(in.displacement)), 8, true, "mbarrier");
        if (!place.cta) continue;
        Mbarrier* barrier = barrier_at(*w.cluster, *place.cta, place.offset, w.clock, &w, nullptr, false);
        if (!barrier) continue;
        if (!in.flags) ++barrier->pending;  // without .noinc the arrival is its own expectation
        arrive(*w.cluster, *place.cta, *barrier, 1, &w.clock, &w, nullptr);
    }
    tick(w);
    return Step::next;
}

Step store_async(Warp& w, const Instruction& in, uint32_t lanes) {
    const unsigned element = in.flags;
    const auto& values = in.extra->b;
    const uint32_t bytes = element * uint32_t(values.size());
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const Place place = shared_place(w, uint32_t(read_any(w, in.a, lane) + uint64_t(in.displacement)), bytes, false, "st.async");
        Place barrier;
        if (!place.cta || !barrier_operand(w, in.x, in.extra->values[0], lane, barrier)) continue;
        std::vector<char> data(bytes);
        for (size_t e = 0; e < values.size(); ++e) {
            const uint64_t value = read_any(w, values[e], lane);
            std::memcpy(data.data() + e * element, &value, element);
        }
        defer_arrival(w, in, *place.cta, place.offset, bytes, barrier.offset, "st.async",
                      [data](Cta& target, uint32_t destination) { std::memcpy(target.shared.data() + destination, data.data(), data.size()); });
    }
    return Step::next;
}

void decode_coordinates(Decoder& decoder, const Node& node) {
    if (node.kind != Node::Kind::address || node.children.size() != 2 || node.children[1].kind != Node::Kind::vector)
        decoder.error("[tensor map, {coordinates}] expected");
    decoder.out.b = decoder.address(node, decoder.out.displacement2);
    for (const Node& child : node.children[1].children) decoder.extra().c.push_back(decoder.source(child, Type::s32));
    if (decoder.extra().c.size() != (decoder.out.flags >> kRankOf & 15)) decoder.error("the number of coordinates is not the rank");
}

void decode_barrier_operand(Decoder& decoder, size_t operand) {
    int64_t displacement;
    decoder.out.x = decoder.address(decoder.node(operand), displacement);
    decoder.extra().values[0] = int(displacement);
}

void take_operation(Decoder& decoder, uint32_t& flags) {
    static const std::string_view kNames[] = {"add", "min", "max", "inc", "dec", "", "", "and", "or", "xor"};
    for (uint32_t i = 0; i < 10; ++i)
        if (!kNames[i].empty() && decoder.mod(kNames[i])) {
            flags |= i << kOperationOf;
            return;
        }
    decoder.error("no reduction operation");
}

// Which of the spaces stands first is the destination.
void take_spaces(Decoder& decoder, uint32_t& flags) {
    bool first = true;
    for (const auto name : decoder.rest()) {
        const bool shared = name == "shared::cluster" || name == "shared::cta";
        if (!shared && name != "global") continue;
        decoder.mod(name);
        if (first && shared) flags |= kToShared | (name == "shared::cta" ? uint32_t(kOwnDestination) : 0u);
        if (!first && shared) flags |= kFromShared;
        first = false;
    }
}

void decode_bulk(Decoder& decoder, bool reduce) {
    Instruction& out = decoder.out;
    if (decoder.mod("commit_group")) return decoder.set(commit_group);
    if (decoder.mod("wait_group")) {
        out.flags = decoder.mod("read") ? kReadOnly : 0;
        out.displacement = decoder.constant(0);
        return decoder.set(wait_group);
    }
    if (decoder.mod("prefetch")) {
        decoder.consume_rest();
        for (size_t i = 0; i < decoder.count(); ++i) decoder.node(i);
        return decoder.set(nothing);
    }
    uint32_t flags = reduce ? uint32_t(kReduce) : 0u;
    const bool tensor = decoder.mod("tensor");
    const bool hint = decoder.mod("L2::cache_hint");
    if (decoder.mod("multicast::cluster")) flags |= kMulticast;
    if (decoder.mod("mbarrier::complete_tx::bytes")) flags |= kWithBarrier;
    if (decoder.mod("bulk_group") == bool(flags & kWithBarrier)) decoder.error("one completion mechanism expected");
    if (reduce) take_operation(decoder, flags);
    take_spaces(decoder, flags);
    decoder.ignore({"cta_group::1", "tile", "noftz"});
    size_t next = 0;
    if (tensor) {
        const auto dimension = decoder.one_of({"1d", "2d", "3d", "4d", "5d"});
        if (dimension.empty()) decoder.error("no dimension");
        flags |= kTensor | uint32_t(dimension[0] - '0') << kRankOf;
        out.flags = flags;
        if (flags & kFromShared) {
            decode_coordinates(decoder, decoder.node(next++));
            out.a = decoder.address(decoder.node(next++), out.displacement);
        } else {
            out.a = decoder.address(decoder.node(next++), out.displacement);
            decode_coordinates(decoder, decoder.node(next++));
            decode_barrier_operand(decoder, next++);
        }
        if (flags & kMulticast) out.c = decoder.source(next++, Type::u16);
        decoder.set(tensor_copy);
    } else {
        if (reduce) flags |= uint32_t(decoder.need_type()) << kTypeOf;
        out.flags = flags;
        out.a = decoder.address(decoder.node(next++), out.displacement);
        out.b = decoder.address(decoder.node(next++), out.displacement2);
        out.d = decoder.source(next++, Type::u32);
        decoder.extra();
        if (flags & kWithBarrier) decode_barrier_operand(decoder, next++);
        if (flags & kMulticast) out.c = decoder.source(next++, Type::u16);
        decoder.set(linear_copy);
    }
    if (hint) decoder.source(next++, Type::b64);
}

void decode_cp(Decoder& decoder) {
    const bool reduce = decoder.mod("reduce");
    if (!decoder.mod("async")) decoder.error("cp.async expected");
    if (decoder.mod("bulk")) return decode_bulk(decoder, reduce);
    Instruction& out = decoder.out;
    if (decoder.mod("commit_group") || decoder.mod("wait_all")) return decoder.set(nothing);
    if (decoder.mod("wait_group")) {
        decoder.constant(0);
        return decoder.set(nothing);
    }
    if (decoder.mod("mbarrier")) {
        decoder.mod("arrive");
        out.flags = decoder.mod("noinc");
        decoder.one_of({"shared::cta", "shared"});
        decoder.need_type();
        out.a = decoder.address(decoder.node(0), out.displacement);
        return decoder.set(small_arrive);
    }
    const bool hint = decoder.mod("L2::cache_hint");
    decoder.ignore({"ca", "cg", "L2::64B", "L2::128B", "L2::256B", "shared::cta", "shared", "global"});
    out.a = decoder.address(decoder.node(0), out.displacement);
    out.b = decoder.address(decoder.node(1), out.displacement2);
    out.flags = uint32_t(decoder.constant(2));
    size_t next = 3;
    if (decoder.count() > next + hint) out.c = decoder.source(next++, Type::u32);
    if (hint) decoder.source(next++, Type::b64);
    decoder.set(small_copy);
}

}  // namespace

void decode_st_async(Decoder& decoder) {
    decoder.ignore({"async", "weak", "shared::cluster", "mbarrier::complete_tx::bytes"});
    decoder.one_of({"v2", "v4"});
    const Type type = decoder.need_type();
    decoder.out.flags = type_bytes(type);
    decoder.out.a = decoder.address(decoder.node(0), decoder.out.displacement);
    decoder.extra().b = decoder.sources(decoder.node(1), type);
    decode_barrier_operand(decoder, 2);
    decoder.set(store_async);
}

bool bulk_done(const Warp& warp, const Wait& wait) {
    const auto& groups = warp.bulk[wait.lane];
    if (!groups) return true;
    for (size_t i = 0; i + wait.value < groups->committed.size(); ++i) {
        const auto& group = *groups->committed[i];
        if (group.reads_left || (!(wait.address & 1) && group.writes_left)) return false;
    }
    return true;
}

void add_bulk(DecodeTable& table) { table["cp"] = decode_cp; }

}  // namespace deep_gemm::simulator
