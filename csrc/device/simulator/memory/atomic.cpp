// atom and red on global and shared memory.
#include <cmath>

#include "../core/execute.hpp"
#include "arena.hpp"
#include "memory.hpp"

namespace deep_gemm::simulator {

namespace {

enum class Op : uint32_t { add, min, max, inc, dec, exchange, compare_swap, bit_and, bit_or, bit_xor };

template <class T>
T apply(Op op, T old, T value, T other) {
    switch (op) {
        case Op::add:
            return T(old + value);
        case Op::min:
            return value < old ? value : old;
        case Op::max:
            return value > old ? value : old;
        case Op::exchange:
            return value;
        case Op::compare_swap:
            return old == value ? other : old;
        default:
            break;
    }
    if constexpr (std::is_integral_v<T>) switch (op) {
            case Op::inc:
                return old >= value ? T(0) : T(old + 1);
            case Op::dec:
                return old == 0 || old > value ? value : T(old - 1);
            case Op::bit_and:
                return T(old & value);
            case Op::bit_or:
                return T(old | value);
            case Op::bit_xor:
                return T(old ^ value);
            default:
                break;
        }
    return old;
}

// The host's own compare-and-swap: blocks on other host threads may work on the same address.
template <class T>
T atomic_update(char* address, Op op, T value, T other) {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
    auto* place = reinterpret_cast<Bits*>(address);
    Bits old = __atomic_load_n(place, __ATOMIC_SEQ_CST);
    for (;;) {
        const Bits wanted = std::bit_cast<Bits>(apply<T>(op, std::bit_cast<T>(old), value, other));
        if (__atomic_compare_exchange_n(place, &old, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return std::bit_cast<T>(old);
    }
}

template <float (*kTo)(uint16_t), uint16_t (*kFrom)(float, Rounding, bool)>
uint32_t update_pair(char* address, Op op, uint32_t value, unsigned halves) {
    const auto combine = [&](uint32_t old) {
        uint32_t result = 0;
        for (unsigned h = 0; h < halves; ++h) {
            const float a = kTo(uint16_t(old >> (16 * h))), b = kTo(uint16_t(value >> (16 * h)));
            const float r = op == Op::add ? a + b : op == Op::min ? std::fmin(a, b) : std::fmax(a, b);
            result |= uint32_t(kFrom(r, Rounding::nearest, false)) << (16 * h);
        }
        return result;
    };
    if (halves == 2) {
        auto* place = reinterpret_cast<uint32_t*>(address);
        uint32_t old = __atomic_load_n(place, __ATOMIC_SEQ_CST);
        while (!__atomic_compare_exchange_n(place, &old, combine(old), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        }
        return old;
    }
    auto* place = reinterpret_cast<uint16_t*>(address);
    uint16_t old = __atomic_load_n(place, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(place, &old, uint16_t(combine(old)), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
    }
    return old;
}

uint64_t update(char* address, Type type, Op op, uint64_t value, uint64_t other) {
    switch (type) {
        case Type::u32:
        case Type::b32:
            return atomic_update<uint32_t>(address, op, uint32_t(value), uint32_t(other));
        case Type::s32:
            return uint32_t(atomic_update<int32_t>(address, op, int32_t(value), int32_t(other)));
        case Type::u64:
        case Type::b64:
            return atomic_update<uint64_t>(address, op, value, other);
        case Type::s64:
            return uint64_t(atomic_update<int64_t>(address, op, int64_t(value), int64_t(other)));
        case Type::b16:
            return atomic_update<uint16_t>(address, op, uint16_t(value), uint16_t(other));
        case Type::f32:
            return std::bit_cast<uint32_t>(atomic_update<float>(address, op, std::bit_cast<float>(uint32_t(value)),
                                                                0.0f));
        case Type::f64:
            return std::bit_cast<uint64_t>(atomic_update<double>(address, op, std::bit_cast<double>(value), 0.0));
        case Type::f16:
            return update_pair<half_to_float, float_to_half>(address, op, uint32_t(value), 1);
        case Type::bf16:
            return update_pair<bf16_to_float, float_to_bf16>(address, op, uint32_t(value), 1);
        case Type::f16x2:
            return update_pair<half_to_float, float_to_half>(address, op, uint32_t(value), 2);
        default:
            return update_pair<bf16_to_float, float_to_bf16>(address, op, uint32_t(value), 2);
    }
}

Step atomic(Warp& w, const Instruction& in, uint32_t lanes) {
    const auto space = Space(in.flags & 15);
    const auto type = Type(in.flags >> 4 & 255);
    const auto op = Op(in.flags >> 12 & 15);
    const bool acquires = in.flags >> 16 & 1, releases = in.flags >> 17 & 1;
    const unsigned bytes = type_bytes(type);
    const Order order{true, bool(acquires), bool(releases), Scope(in.flags >> 18 & 3)};
    if (releases) release_near(w, lanes);
    uint32_t own_lanes = lanes;
    const auto& values = in.extra->b;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const uint64_t address = read_any(w, in.a, lane) + uint64_t(in.displacement);
        const Place place = resolve(w, space, address, bytes * unsigned(values.size()), true, lane);
        Arena* const arena =
            place.data && !place.cta ? arena_at(*w.cluster, reinterpret_cast<uint64_t>(place.data)) : nullptr;
        if (arena) own_lanes &= ~(1u << lane);
        for (size_t e = 0; e < values.size(); ++e) {
            uint64_t old = ~uint64_t(0);
            if (place.data) {
                if (place.cta) {
                    if (!shared_read(w, lane, *place.cta, place.offset, bytes, true) && in.d.present)
                        mark_tainted(w, in.d, 1u << lane);
                    shared_write(w, lane, *place.cta, place.offset, bytes, initialised(*place.cta, place.offset, bytes),
                                 true);
                } else if (tainted_lanes(w, values[e]) >> lane & 1) {
                    report(*w.cluster, "uninitialised",
                           "a value that comes from shared or tensor memory nobody wrote is added to global memory " +
                               hex(address),
                           &w);
                }
                if (arena)
                    arena->before_atomic(w, lane, reinterpret_cast<uint64_t>(place.data + e * bytes), bytes, order);
                old = update(place.data + e * bytes, type, op, read_any(w, values[e], lane),
                             in.c.present ? read_any(w, in.c, lane) : 0);
                if (arena)
                    arena->after_atomic(w, lane, reinterpret_cast<uint64_t>(place.data + e * bytes), bytes, order);
            }
            if (in.extra->d.size() > e) write_any(w, in.extra->d[e], lane, old);
        }
    }
    if (acquires) learn(w, lanes, w.cluster->sync_clock);
    if (own_lanes && w.cluster->launch->devices) {
        if (acquires) learn(w, own_lanes, w.cluster->far_clock);
        if (releases) release_far(w, own_lanes);
    }
    if (releases) tick(w);
    ++w.cluster->progress;
    return Step::next;
}

void decode_atomic(Decoder& decoder) {
    const bool is_atom = decoder.mnemonic() == "atom";
    const bool async = !is_atom && decoder.mod("async");  // nothing tells when it is done: at once is as good
    const auto order = decoder.one_of({"acq_rel", "acquire", "release", "relaxed"});
    const Scope scope = take_scope(decoder, Scope::gpu);
    const auto space_name = decoder.one_of({"global", "shared::cta", "shared::cluster", "shared"});
    if (async && space_name != "global") decoder.error("red.async without an mbarrier is for .global");
    const Space space = space_name == "global"            ? Space::global
                        : space_name == "shared::cluster" ? Space::shared_cluster
                        : space_name.empty()              ? Space::generic
                                                          : Space::shared_cta;
    const auto op_name = decoder.one_of({"add", "min", "max", "inc", "dec", "exch", "cas", "and", "or", "xor"});
    const Op op = op_name == "add"    ? Op::add
                  : op_name == "min"  ? Op::min
                  : op_name == "max"  ? Op::max
                  : op_name == "inc"  ? Op::inc
                  : op_name == "dec"  ? Op::dec
                  : op_name == "exch" ? Op::exchange
                  : op_name == "cas"  ? Op::compare_swap
                  : op_name == "and"  ? Op::bit_and
                  : op_name == "or"   ? Op::bit_or
                                      : Op::bit_xor;
    if (op_name.empty()) decoder.error("no operation");
    decoder.mod("noftz");
    const bool hint = decoder.mod("L2::cache_hint");
    const auto vector = decoder.one_of({"v2", "v4", "v8"});
    const Type type = decoder.need_type();
    Instruction& out = decoder.out;
    out.flags = uint32_t(space) | uint32_t(type) << 4 | uint32_t(op) << 12 |
                uint32_t(order == "acq_rel" || order == "acquire") << 16 |
                uint32_t(order == "acq_rel" || order == "release") << 17 | uint32_t(scope) << 18;
    size_t next = 0;
    Extra& extra = decoder.extra();
    if (is_atom) {
        extra.d =
            vector.empty() ? std::vector<Operand>{decoder.dest(next, type)} : decoder.dests(decoder.node(next), type);
        out.d = extra.d[0];
        ++next;
    }
    out.a = decoder.address(decoder.node(next++), out.displacement);
    extra.b = decoder.sources(decoder.node(next++), type);
    if (op == Op::compare_swap) out.c = decoder.source(next++, type);
    if (hint) decoder.source(next++, Type::b64);
    decoder.set(atomic);
}

}  // namespace

void reduce_memory(char* address, Type type, int operation, const char* value) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, value, type_bytes(type));
    update(address, type, Op(operation), bits, 0);
}

void add_atomic(DecodeTable& table) { table["atom"] = table["red"] = decode_atomic; }

}  // namespace deep_gemm::simulator
