// cp.async.bulk.tensor: boxes of tensors, swizzles, what is out of range.
#include <algorithm>
#include <cstring>

#include "../../../util/require.hpp"
#include "arena.hpp"
#include "copy_engine.hpp"
#include "map_changes.hpp"

namespace deep_gemm::simulator {

namespace {

uint32_t swizzled(uint32_t address, int swizzle) {
    constexpr uint32_t kMasks[] = {0, 1, 3, 7};
    return address ^ ((address >> 7) & kMasks[swizzle]) << 4;
}

const StoredTensorMap* find_map(Warp& w, unsigned lane, uint64_t address, unsigned rank) {
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
        report(cluster, "tensor map", concat("the tensor map has rank ", int(map->rank), ", the instruction ", rank),
               &w);
        return nullptr;
    }
    check_map_use(w, lane, address, *map);
    return map;
}

/// One box of a tensor: visits its 16-byte chunks with where they stand in global and in shared memory.
struct Box {
    StoredTensorMap map;
    int32_t at[5] = {};
    bool four_rows = false;  // at[1] to at[4], wherever each is

    TensorMapType type() const { return TensorMapType(map.type); }
    /// Of so many elements of a row, the bytes in global memory.
    int64_t memory_bytes(int64_t elements) const { return elements * memory_bits(type()) / 8; }
    uint32_t inner_bytes() const { return map.box[0] * shared_bits(type()) / 8; }
    uint32_t row_count() const {
        uint32_t total = 1;
        for (int i = 1; i < map.rank; ++i) total *= map.box[i];
        return total;
    }
    uint32_t bytes() const { return inner_bytes() * row_count(); }
    uint32_t counted_bytes() const { return uint32_t(memory_bytes(map.box[0])) * row_count(); }
    // body(global address of the row's first in-range byte, shared offset of row, first and last in-range byte of row)
    template <class Body>
    void rows(Body&& body) const {
        uint32_t index[5] = {};
        const uint32_t rows_total = row_count();
        const int64_t size0 = int64_t(map.sizes[0]);
        const int64_t first = std::max<int64_t>(0, -int64_t(at[0])), end = std::min<int64_t>(map.box[0], size0 - at[0]);
        for (uint32_t row = 0; row < rows_total; ++row) {
            bool inside = first < end;
            int64_t offset = memory_bytes(at[0]);
            for (int i = 1; i < map.rank; ++i) {
                const int64_t coordinate = four_rows ? at[1 + index[1]] : int64_t(at[i]) + index[i];
                inside &= coordinate >= 0 && coordinate < int64_t(map.sizes[i]);
                offset += coordinate * int64_t(map.strides[i - 1]);
            }
            body(map.address + uint64_t(offset), row * inner_bytes(), inside ? uint32_t(memory_bytes(first)) : 0u,
                 inside ? uint32_t(memory_bytes(end)) : 0u);
            for (int i = 1; i < map.rank; ++i) {
                if (++index[i] < map.box[i]) break;
                index[i] = 0;
            }
        }
    }
};

// Copies between a row and shared memory go through the swizzle 16 bytes at a time.
template <bool kToSharedMemory>
void copy_row(Cta& cta, uint32_t base, int swizzle, uint32_t row, char* buffer, uint32_t bytes) {
    for (uint32_t x = 0; x < bytes; x += 16) {
        char* place = cta.shared.data() + swizzled(base + row + x, swizzle);
        const uint32_t part = std::min(16u, bytes - x);
        if (kToSharedMemory)
            std::memcpy(place, buffer + x, part);
        else
            std::memcpy(buffer + x, place, part);
    }
}

// Sixteen elements to each 16 bytes, from the end on, so that nothing is overwritten that is still to be moved.
void spread(TensorMapType type, char* row, uint32_t elements) {
    const uint32_t packed = memory_bits(type) * 16 / 8;
    for (uint32_t chunk = elements / 16; chunk-- > 0;) {
        std::memmove(row + 16 * chunk, row + packed * chunk, packed);
        std::memset(row + 16 * chunk + packed, 0, 16 - packed);
    }
}

void load_box(Cta& cta, uint32_t destination, const Box& box) {
    char row_buffer[1024];
    const uint32_t inner = box.inner_bytes();
    box.rows([&](uint64_t address, uint32_t row, uint32_t first, uint32_t end) {
        std::memset(row_buffer, 0, inner);
        if (first < end) std::memcpy(row_buffer + first, reinterpret_cast<const char*>(address) + first, end - first);
        if (unpacks_to_bytes(box.type())) spread(box.type(), row_buffer, box.map.box[0]);
        copy_row<true>(cta, destination, box.map.swizzle, row, row_buffer, inner);
    });
}

Type reduce_type(TensorMapType type) {
    switch (type) {
        case TensorMapType::bf16:
            return Type::bf16;
        case TensorMapType::f16:
            return Type::f16;
        case TensorMapType::f32:
            return Type::f32;
        case TensorMapType::i32:
            return Type::s32;
        default:
            return Type::none;
    }
}

// A store writes whole 16-byte units, however few of their elements are in range (seen on an H200: rows of 130 BF16
// were written to column 135). Where a row of this store ends: bytes from the box's first one.
uint32_t written_end(const Box& box, uint32_t end) {
    const int64_t start = box.memory_bytes(box.at[0]), row_end = box.memory_bytes(int64_t(box.map.sizes[0]));
    if (start + end < row_end) return end;
    return uint32_t(std::min<int64_t>(box.inner_bytes(), (row_end + 15) / 16 * 16 - start));
}

// Reports a store that writes past its rows. Returns the end of the memory that it may write: the kernel's memory is
// ours too.
uint64_t check_row_ends(Warp& w, const Box& box) {
    const uint64_t limit = box.map.address + covered_bytes(box.map);
    uint64_t last = limit;
    uint32_t beyond = 0;
    box.rows([&](uint64_t address, uint32_t, uint32_t first, uint32_t end) {
        const uint32_t written = first < end ? written_end(box, end) : end;
        if (written == end) return;
        beyond = written - end;
        last = std::max(last, address + written);
    });
    if (!beyond) return limit;
    report(*w.cluster, "tensor store past the innermost extent",
           concat("rows of ", box.map.sizes[0], " elements are ", box.memory_bytes(int64_t(box.map.sizes[0])),
                  " bytes, and the copy engine writes whole 16 bytes: ", beyond,
                  " bytes behind each row are overwritten"),
           &w);
    return last == limit || global_range(*w.cluster, limit, last - limit, true, &w, nullptr) ? last : limit;
}

// Of elements that are spread to bytes, and where a box may begin: an H200 answers "illegal instruction" to a box that
// begins elsewhere, whatever its swizzle.
bool check_start(Warp& w, const Box& box, bool store) {
    const bool spreads = unpacks_to_bytes(box.type());
    if (spreads && store) {
        report(*w.cluster, "tensor map", concat("a tensor map of ", name(box.type()), " cannot be stored to"), &w);
        return false;
    }
    const int32_t step = spreads ? 128 : int32_t(128 / memory_bits(box.type()));
    if (box.at[0] % step) {
        report(*w.cluster, "misaligned",
               concat("a tensor copy of ", name(box.type()), " needs first coordinates that are multiples of ", step,
                      spreads ? "" : ", 16 bytes", ", got ", box.at[0]),
               &w);
        return false;
    }
    const int32_t least = *std::ranges::min_element(box.at);
    if (!store || least >= 0) return true;
    report(*w.cluster, "misaligned", concat("a tensor store needs coordinates that are not negative, got ", least), &w);
    return false;
}

// All that a map of the host's describes must be the launch's. Of one that the kernel has made it is what the box
// names: CUTLASS's reach beyond their scales.
bool lies_in_memory(Warp& w, uint64_t map_address, const Box& box, bool store) {
    if (!is_writable(*w.cluster->launch, map_address))
        return global_range(*w.cluster, box.map.address, covered_bytes(box.map), store, &w, nullptr) != nullptr;
    bool inside = true;
    box.rows([&](uint64_t address, uint32_t, uint32_t first, uint32_t end) {
        if (inside && first < end)
            inside = global_range(*w.cluster, address + first, end - first, store, &w, nullptr) != nullptr;
    });
    return inside;
}

int32_t coordinate(const Warp& w, const Operand& operand, unsigned lane) { return int32_t(read_any(w, operand, lane)); }

/// The box that an instruction names. Of four rows it has four, though the tensor map's has one.
Box named_box(Warp& w, const Instruction& in, unsigned lane, const StoredTensorMap& map) {
    Box box{map};
    for (size_t i = 0; i < in.extra->c.size(); ++i) box.at[i] = coordinate(w, in.extra->c[i], lane);
    box.four_rows = in.flags & kFourRows;
    if (!box.four_rows) return box;
    if (map.box[1] != 1)
        report(*w.cluster, "tensor map", concat("boxes of four rows need a tensor map of one, got ", map.box[1]), &w);
    box.map.box[1] = 4;
    return box;
}

AskedBox asked_box(const Warp& w, const Instruction& in, unsigned lane, uint64_t map_address) {
    AskedBox box{map_address, {}};
    for (size_t i = 0; i < in.extra->c.size(); ++i) box.second[i] = coordinate(w, in.extra->c[i], lane);
    return box;
}

}  // namespace

Step tensor_prefetch(Warp& w, const Instruction& in, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const uint64_t map_address = read_any(w, in.b, lane) + uint64_t(in.displacement2);
        const StoredTensorMap* map = find_map(w, lane, map_address, in.flags >> kRankOf & 15);
        if (!map || !check_start(w, named_box(w, in, lane, *map), false)) continue;
        w.cluster->asked_for.insert(asked_box(w, in, lane, map_address));
        ++w.cluster->statistics.boxes_asked_for;
    }
    return Step::next;
}

Step tensor_copy(Warp& w, const Instruction& in, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        ++cluster.statistics.tma_copies;
        const uint64_t map_address = read_any(w, in.b, lane) + uint64_t(in.displacement2);
        const StoredTensorMap* map = find_map(w, lane, map_address, in.flags >> kRankOf & 15);
        if (!map) continue;
        const Box box = named_box(w, in, lane, *map);
        const bool store = in.flags & kFromShared;
        if (!store && !cluster.asked_for.empty()) cluster.asked_for.erase(asked_box(w, in, lane, map_address));
        if (!check_start(w, box, store)) continue;
        if (Arena* arena = store ? nullptr : arena_at(cluster, map->address)) {
            if (!arena->holds(map->address + covered_bytes(*map) - 1))
                report(cluster, "out of bounds", "a tensor reaches beyond what blocks exchange", &w);
            box.rows([&](uint64_t address, uint32_t, uint32_t first, uint32_t end) {
                if (first < end) arena->read_for_copy(w, lane, address + first, end - first);
            });
        } else if (!lies_in_memory(w, map_address, box, store)) {
            continue;
        }
        const uint32_t bytes = box.bytes();
        const Place place = shared_place(w, uint32_t(read_any(w, in.a, lane) + uint64_t(in.displacement)), bytes,
                                         store || in.flags & kOwnDestination, "tensor copy");
        if (!place.cta) continue;
        if (place.offset % 128) {
            report(cluster, "misaligned",
                   concat("a tensor copy's shared memory address ", hex(place.offset), " is not a multiple of 128"),
                   &w);
            continue;
        }
        if (!store) {
            Place barrier;
            if (!barrier_operand(w, in.x, in.extra->values[0], lane, barrier)) continue;
            const uint32_t mask = in.flags & kMulticast ? w.row<uint32_t>(in.c)[lane] & 0xffff : 1u << place.cta->rank;
            const bool pair = in.flags & kPairBarrier;
            if (!(in.flags & kMulticast) && barrier.cta != place.cta &&
                !(pair && barrier.cta->rank / 2 == place.cta->rank / 2))
                report(cluster, "barrier",
                       pair ? "the mbarrier of a copy must be in the block it writes to, or in the other of its pair"
                            : "the mbarrier of a copy must be in the block it writes to",
                       &w);
            // Of a pair, the block that holds the barrier is the even or the odd one of each pair.
            const auto holder = [&](const Cta& cta) -> Cta& {
                return *cluster.ctas[pair ? (cta.rank & ~1u) | (barrier.cta->rank & 1) : cta.rank];
            };
            if (mask >> cluster.ctas.size() || mask == 0)
                report(cluster, "cluster",
                       concat("multicast mask ", hex(mask), " names blocks that a cluster of ", cluster.ctas.size(),
                              " does not have"),
                       &w);
            for (auto& cta : cluster.ctas)
                if (mask >> cta->rank & 1)
                    defer_arrival(
                        w, in, lane, *cta, place.offset, bytes, box.counted_bytes(), holder(*cta), barrier.offset,
                        "a tensor copy",
                        [box](Cta& target, uint32_t destination) { load_box(target, destination, box); },
                        box.map.swizzle);
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
        const uint64_t limit = check_row_ends(w, box);
        defer_departure(
            w, in, lane, source, bytes, "a tensor store",
            [=, &in](Cta& cta) {
                std::vector<char> data(bytes);
                const uint32_t inner = box.inner_bytes();
                box.rows([&](uint64_t, uint32_t row, uint32_t first, uint32_t end) {
                    for (uint32_t x = first / 16 * 16; x < end; x += 16)
                        check_initialised(warp, &in, cta,
                                          swizzled(source + row + x, box.map.swizzle) + std::max(first, x) - x,
                                          std::min(end, x + 16) - std::max(first, x));
                    copy_row<false>(cta, source, box.map.swizzle, row, data.data() + row, inner);
                });
                return data;
            },
            [=](std::vector<char>& data) {
                box.rows([&](uint64_t address, uint32_t row, uint32_t first, uint32_t end) {
                    char* target = reinterpret_cast<char*>(address);
                    if (first >= end) return;
                    end = uint32_t(std::min<uint64_t>(written_end(box, end), limit - address));
                    if (type == Type::none)
                        std::memcpy(target + first, data.data() + row + first, end - first);
                    else
                        for (uint32_t x = first; x < end; x += type_bytes(type))
                            reduce_memory(target + x, type, operation, data.data() + row + x);
                });
            });
        map_read_by_store(w, map_address, w.bulk_sequence);
    }
    return Step::next;
}

}  // namespace deep_gemm::simulator
