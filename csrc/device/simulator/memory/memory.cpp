// Loads and stores.
#include "memory.hpp"

#include "../../../util/require.hpp"
#include "../core/execute.hpp"
#include "arena.hpp"
#include "map_changes.hpp"

namespace deep_gemm::simulator {

void decode_st_async(Decoder& decoder);  // bulk.cpp

namespace {

constexpr unsigned kLargestAccess = 32;

struct Access {
    Space space;
    unsigned element_bytes, elements;
    bool sign_extend, acquire, release, ordered;  // ordered: volatile, relaxed ... : the program synchronises with it
    Order order;                                  // as memory that devices share has it: a volatile access is relaxed
};

Access unpack(const Instruction& in) {
    return {
        Space(in.flags & 15),
        in.flags >> 4 & 31,
        in.flags >> 9 & 15,
        bool(in.flags >> 13 & 1),
        bool(in.flags >> 14 & 1),
        bool(in.flags >> 15 & 1),
        bool(in.flags >> 16 & 1),
        {bool(in.flags >> 16 & 1), (in.flags >> 14 & 3) == 1, (in.flags >> 14 & 3) == 2, Scope(in.flags >> 17 & 3)}};
}

void count_conflicts(Warp& warp, const uint32_t* offsets, uint32_t lanes, unsigned bytes) {
    auto& statistics = warp.cluster->statistics;
    ++statistics.shared_accesses;
    const unsigned group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;  // lanes served together
    for (unsigned start = 0; start < kLanes; start += group) {
        uint32_t words[32][8];
        uint8_t counts[32] = {};
        unsigned worst = 1;
        for (unsigned lane = start; lane < start + group; ++lane) {
            if (!(lanes >> lane & 1)) continue;
            for (unsigned part = 0; part < std::max(1u, bytes / 4); ++part) {
                const uint32_t word = offsets[lane] / 4 + part, bank = word % 32;
                bool known = false;
                for (unsigned i = 0; i < std::min<unsigned>(counts[bank], 8); ++i) known |= words[bank][i] == word;
                if (known) continue;
                if (counts[bank] < 8) words[bank][counts[bank]] = word;
                worst = std::max<unsigned>(worst, ++counts[bank]);
            }
        }
        statistics.bank_conflicts += worst - 1;
    }
}

uint64_t load_element(const char* data, unsigned bytes, bool sign_extend, unsigned register_bytes) {
    uint64_t value = 0;
    __builtin_memcpy(&value, data, bytes);
    if (sign_extend && bytes < register_bytes) {
        const unsigned shift = 64 - bytes * 8;
        value = uint64_t(int64_t(value << shift) >> shift);
        if (bytes == 2 && register_bytes == 4) value &= 0xffffffffu;
    }
    return value;
}

Step load(Warp& w, const Instruction& in, uint32_t lanes) {
    const Access access = unpack(in);
    const auto& targets = in.extra->d;
    const unsigned bytes = access.element_bytes * access.elements;
    if (access.acquire) learn(w, lanes, w.cluster->sync_clock);
    uint32_t shared_lanes = 0, offsets[kLanes], own_lanes = lanes;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const uint64_t address = read_any(w, in.a, lane) + uint64_t(in.displacement);
        const Place place = resolve(w, access.space, address, bytes, false, lane);
        bool good = true;
        char seen[kLargestAccess];
        const char* source = place.data;
        if (place.cta) {
            shared_lanes |= 1u << lane;
            offsets[lane] = place.offset;
            good = shared_read(w, lane, *place.cta, place.offset, bytes, access.ordered);
        } else if (Arena* arena = place.data ? arena_at(*w.cluster, reinterpret_cast<uint64_t>(place.data)) : nullptr) {
            arena->load(w, lane, reinterpret_cast<uint64_t>(place.data), bytes, access.element_bytes, access.order,
                        seen);
            source = seen, own_lanes &= ~(1u << lane);
        } else if (place.data && !access.ordered && access.space != Space::local && access.space != Space::param) {
            touch_global(w, lane, reinterpret_cast<uint64_t>(place.data), bytes, false);
        }
        for (size_t e = 0; e < access.elements; ++e) {
            if (!good && !initialised(*place.cta, place.offset + e * access.element_bytes, access.element_bytes))
                mark_tainted(w, targets[e], 1u << lane);
            if (access.element_bytes == 16) {
                uint64_t pair[2] = {~uint64_t(0), ~uint64_t(0)};
                if (source) __builtin_memcpy(pair, source + 16 * e, 16);
                __builtin_memcpy(w.row<char>(targets[e]) + lane * 16, pair, 16);
                continue;
            }
            const uint64_t value = source ? load_element(source + e * access.element_bytes, access.element_bytes,
                                                         access.sign_extend, targets[e].bytes)
                                          : ~uint64_t(0);
            write_any(w, targets[e], lane, value);
        }
    }
    if (access.acquire && own_lanes && w.cluster->launch->devices) learn(w, own_lanes, w.cluster->far_clock);
    if (shared_lanes)
        count_conflicts(w, offsets, shared_lanes, bytes);
    else if (access.space == Space::global || access.space == Space::generic)
        w.cluster->statistics.global_load_bytes += uint64_t(bytes) * std::popcount(lanes);
    return Step::next;
}

void gather_values(const Warp& w, const Access& access, const std::vector<Operand>& values, unsigned lane, char* data) {
    for (size_t e = 0; e < access.elements; ++e) {
        char* to = data + e * access.element_bytes;
        if (access.element_bytes == 16) {
            __builtin_memcpy(to, w.row<char>(values[e]) + lane * 16, 16);
        } else {
            const uint64_t value = read_any(w, values[e], lane);
            __builtin_memcpy(to, &value, access.element_bytes);
        }
    }
}

// What stands there already may be stored again, whoever reads it meanwhile.
bool changes_nothing(const Place& place, const char* data, unsigned bytes) {
    return initialised(*place.cta, place.offset, bytes) && __builtin_memcmp(place.data, data, bytes) == 0;
}

Step store(Warp& w, const Instruction& in, uint32_t lanes) {
    const Access access = unpack(in);
    const auto& values = in.extra->b;
    const unsigned bytes = access.element_bytes * access.elements;
    if (access.release) release_near(w, lanes);
    uint32_t shared_lanes = 0, offsets[kLanes], bad = 0, own_lanes = lanes;
    for (const auto& value : values) bad |= tainted_lanes(w, value);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const uint64_t address = read_any(w, in.a, lane) + uint64_t(in.displacement);
        const Place place = resolve(w, access.space, address, bytes, true, lane);
        if (!place.data) continue;
        char data[kLargestAccess];
        gather_values(w, access, values, lane, data);
        if (place.cta) {
            shared_lanes |= 1u << lane;
            offsets[lane] = place.offset;
            if (w.cluster->by_hardware() && changes_nothing(place, data, bytes)) continue;
            shared_write(w, lane, *place.cta, place.offset, bytes, !(bad >> lane & 1), access.ordered);
            if (bad >> lane & 1)
                for (size_t e = 0; e < access.elements; ++e)
                    if (!(tainted_lanes(w, values[e]) >> lane & 1))
                        mark_initialised(*place.cta, place.offset + e * access.element_bytes, access.element_bytes);
        } else if (bad >> lane & 1 && access.space != Space::local) {
            report(*w.cluster, "uninitialised",
                   concat("a value that comes from shared or tensor memory nobody wrote is stored to global memory ",
                          hex(address)),
                   &w);
        }
        if (Arena* arena = place.cta ? nullptr : arena_at(*w.cluster, reinterpret_cast<uint64_t>(place.data))) {
            own_lanes &= ~(1u << lane);
            arena->store(w, lane, reinterpret_cast<uint64_t>(place.data), bytes, access.order, data);
            continue;
        }
        if (!place.cta && access.space != Space::local) {
            const auto at = reinterpret_cast<uint64_t>(place.data);
            if (!access.ordered) touch_global(w, lane, at, bytes, true);
            note_stored_map(w, lane, at, data, bytes);
        }
        __builtin_memcpy(place.data, data, bytes);
    }
    if (access.release && own_lanes && w.cluster->launch->devices) release_far(w, own_lanes);
    ++w.cluster->progress;
    if (shared_lanes) {
        count_conflicts(w, offsets, shared_lanes, bytes);
    } else {
        w.cluster->statistics.global_store_bytes += uint64_t(bytes) * std::popcount(lanes);
    }
    if (access.release) tick(w);
    return Step::next;
}

Space take_space(Decoder& decoder) {
    const auto name = decoder.one_of({"shared::cta", "shared::cluster", "shared", "global", "local", "param::entry",
                                      "param", "const"});
    if (name == "shared::cluster") return Space::shared_cluster;
    if (name.starts_with("shared")) return Space::shared_cta;
    if (name == "local") return Space::local;
    if (name.starts_with("param")) return Space::param;
    return name.empty() ? Space::generic : Space::global;
}

void decode_access(Decoder& decoder, bool is_store) {
    Instruction& out = decoder.out;
    const auto order = decoder.one_of({"acquire", "release", "relaxed", "volatile", "weak", "mmio"});
    if (order == "mmio") decoder.mod("relaxed");
    const Scope scope = take_scope(decoder, Scope::sys);
    const Space space = take_space(decoder);
    const bool hint = decoder.has("L2::cache_hint");
    decoder.ignore({"nc",
                    "ca",
                    "cg",
                    "cs",
                    "lu",
                    "cv",
                    "wb",
                    "wt",
                    "L1::evict_normal",
                    "L1::evict_unchanged",
                    "L1::evict_first",
                    "L1::evict_last",
                    "L1::no_allocate",
                    "L2::evict_normal",
                    "L2::evict_first",
                    "L2::evict_last",
                    "L2::cache_hint",
                    "L2::64B",
                    "L2::128B",
                    "L2::256B",
                    "unified"});
    const auto vector = decoder.one_of({"v2", "v4", "v8"});
    const unsigned elements = vector.empty() ? 1 : unsigned(vector[1] - '0');
    const Type type = decoder.need_type();
    const unsigned element_bytes = type_bytes(type);
    if (elements * element_bytes > kLargestAccess) decoder.error("an access is 32 bytes at most");
    const bool ordered =
        order == "acquire" || order == "release" || order == "relaxed" || order == "volatile" || order == "mmio";
    out.flags = uint32_t(space) | element_bytes << 4 | elements << 9 | uint32_t(is_signed(type)) << 13 |
                uint32_t(order == "acquire" || order == "volatile") << 14 |
                uint32_t(order == "release" || order == "volatile") << 15 | uint32_t(ordered) << 16 |
                uint32_t(scope) << 17;
    const size_t value_operand = is_store ? 1 : 0, address_operand = is_store ? 0 : 1;
    out.a = decoder.address(decoder.node(address_operand), out.displacement);
    const Node& values = decoder.node(value_operand);
    const auto add = [&](const Node& value) {
        if (is_store)
            decoder.extra().b.push_back(value.kind == Node::Kind::name
                                            ? decoder.source_any(value, std::max(4u, element_bytes))
                                            : decoder.source(value, type));
        else
            decoder.extra().d.push_back(decoder.dest_any(value, std::max(4u, element_bytes)));
    };
    if (values.kind == Node::Kind::vector)
        for (const Node& value : values.children) add(value);
    else
        add(values);
    const size_t given = is_store ? decoder.extra().b.size() : decoder.extra().d.size();
    if (given != elements)
        decoder.error(concat("the instruction moves ", elements, " elements, but ", given, " operands are given"));
    for (const auto& operand : is_store ? decoder.extra().b : decoder.extra().d)
        if (operand.bytes < element_bytes) decoder.error("a register is narrower than the element");
    if (hint) decoder.source(2, Type::b64);
    decoder.set(is_store ? store : load);
}

/// An argument or a result of a call, of which no more than one word is known.
void decode_call_param(Decoder& decoder, bool is_store) {
    const Operand* const param = decoder.call_param(decoder.node(is_store ? 0 : 1));
    const Node& value = decoder.node(is_store ? 1 : 0);
    decoder.mod("param");
    const bool is_word = param && value.kind != Node::Kind::vector;
    const Type type = is_word ? decoder.need_type() : Type::none;
    decoder.consume_rest();
    if (!is_word) return decoder.set(nothing);  // of a call that will be refused when reached
    decoder.out.d = is_store ? *param : decoder.dest(value, type);
    decoder.out.a = is_store ? decoder.source(value, type) : *param;
    decoder.set([](Warp& w, const Instruction& in, uint32_t lanes) {
        for_lanes(lanes, [&](unsigned i) { write_any(w, in.d, i, read_any(w, in.a, i)); });
        return Step::next;
    });
}

void decode_ld(Decoder& decoder) {
    if (decoder.has("param") && decoder.count() > 1 && decoder.call_param(decoder.node(1)))
        return decode_call_param(decoder, false);
    decode_access(decoder, false);
}
void decode_st(Decoder& decoder) {
    if (decoder.has("param")) return decode_call_param(decoder, true);
    if (decoder.has("async")) {
        return decode_st_async(decoder);
    }
    decode_access(decoder, true);
}

void decode_prefetch(Decoder& decoder) {
    decoder.consume_rest();
    int64_t displacement;
    decoder.address(decoder.node(0), displacement);
    decoder.set(nothing);
}

void decode_createpolicy(Decoder& decoder) {
    decoder.consume_rest();
    decoder.out.d = decoder.dest(0, Type::b64);
    for (size_t i = 1; i < decoder.count(); ++i) {
        const Node& node = decoder.node(i);
        if (node.kind == Node::Kind::name) decoder.source_any(node, 4);
    }
    decoder.set([](Warp& w, const Instruction& in, uint32_t lanes) {
        for_lanes(lanes, [&](unsigned i) { w.row<uint64_t>(in.d)[i] = 0; });
        return Step::next;
    });
}

}  // namespace

void add_memory(DecodeTable& table) {
    table["ld"] = table["ldu"] = decode_ld;
    table["st"] = decode_st;
    table["prefetch"] = decode_prefetch;
    table["createpolicy"] = decode_createpolicy;
}

}  // namespace deep_gemm::simulator
