// Instructions that exchange values between the lanes of a warp.
#include <cmath>
#include <limits>

#include "../core/execute.hpp"
#include "../memory/memory.hpp"

namespace deep_gemm::simulator {

namespace {

enum class Shuffle : uint32_t { up, down, butterfly, index };

Step shfl(Warp& w, const Instruction& in, uint32_t lanes) {
    auto* d = w.row<uint32_t>(in.d);
    const auto *b = w.row<uint32_t>(in.b), *c = w.row<uint32_t>(in.c);
    uint32_t values[kLanes];
    __builtin_memcpy(values, w.row<uint32_t>(in.a), sizeof(values));
    const uint32_t tainted = tainted_lanes(w, in.a), places = tainted_lanes(w, in.b) | tainted_lanes(w, in.c);
    uint32_t valid_lanes = 0, bad = places & lanes;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const int clamp = int(c[lane] & 31), segment = int(c[lane] >> 8 & 31), offset = int(b[lane] & 31);
        const int maximum = (lane & segment) | (clamp & ~segment), minimum = lane & segment;
        int from = 0;
        bool valid = false;
        switch (Shuffle(in.flags)) {
            case Shuffle::up:
                from = lane - offset;
                valid = from >= maximum;
                break;
            case Shuffle::down:
                from = lane + offset;
                valid = from <= maximum;
                break;
            case Shuffle::butterfly:
                from = lane ^ offset;
                valid = from <= maximum;
                break;
            case Shuffle::index:
                from = minimum | (offset & ~segment);
                valid = from <= maximum;
                break;
        }
        if (!valid) from = lane;
        if (!(lanes >> from & 1))
            report(*w.cluster, "convergence", "shfl reads lane " + std::to_string(from) + ", which does not take part",
                   &w);
        d[lane] = values[from];
        bad |= (tainted >> from & 1) << lane;
        valid_lanes |= uint32_t(valid) << lane;
    }
    if (in.e.present) w.mask(in.e) = (w.mask(in.e) & ~lanes) | valid_lanes;
    set_tainted(w, in.d, (tainted_lanes(w, in.d) & ~lanes) | bad);
    return Step::next;
}

void members(Decoder& decoder, size_t operand) {
    decoder.out.x = decoder.source(operand, Type::u32);
    decoder.out.gather = Gather::members;
}

void decode_shfl(Decoder& decoder) {
    if (!decoder.mod("sync")) decoder.error("shfl without .sync is not supported");
    const auto mode = decoder.one_of({"up", "down", "bfly", "idx"});
    decoder.out.flags = uint32_t(mode == "up"     ? Shuffle::up
                                 : mode == "down" ? Shuffle::down
                                 : mode == "bfly" ? Shuffle::butterfly
                                                  : Shuffle::index);
    decoder.need_type();
    if (decoder.is_pair(0)) {
        const Node& pair = decoder.node(0);
        decoder.out.d = decoder.dest(pair.children[0], Type::b32);
        decoder.out.e = decoder.predicate_dest(pair.children[1]);
    } else {
        decoder.out.d = decoder.dest(0, Type::b32);
    }
    decoder.out.a = decoder.source(1, Type::b32);
    decoder.out.b = decoder.source(2, Type::b32);
    decoder.out.c = decoder.source(3, Type::b32);
    members(decoder, 4);
    decoder.out.sets_taint = true;
    decoder.set(shfl);
}

enum class Vote : uint32_t { all, any, uni, ballot };
Step vote(Warp& w, const Instruction& in, uint32_t lanes) {
    const uint32_t yes = w.predicate(in.a) & lanes;
    if (Vote(in.flags) == Vote::ballot) {
        for_lanes(lanes, [&](unsigned i) { w.row<uint32_t>(in.d)[i] = yes; });
        return Step::next;
    }
    const bool result = Vote(in.flags) == Vote::all   ? yes == lanes
                        : Vote(in.flags) == Vote::any ? yes != 0
                                                      : yes == lanes || yes == 0;
    w.mask(in.d) = (w.mask(in.d) & ~lanes) | (result ? lanes : 0);
    return Step::next;
}
void decode_vote(Decoder& decoder) {
    if (!decoder.mod("sync")) decoder.error("vote without .sync is not supported");
    const auto mode = decoder.one_of({"all", "any", "uni", "ballot"});
    decoder.out.flags = uint32_t(mode == "all"   ? Vote::all
                                 : mode == "any" ? Vote::any
                                 : mode == "uni" ? Vote::uni
                                                 : Vote::ballot);
    const Type type = decoder.need_type();
    decoder.out.d = decoder.dest(0, type);
    decoder.out.a = decoder.predicate(1);
    members(decoder, 2);
    decoder.set(vote);
}

template <bool kAll>
Step match(Warp& w, const Instruction& in, uint32_t lanes) {
    bool all = true;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        uint32_t same = 0;
        for (uint32_t other = lanes; other; other &= other - 1) {
            const unsigned j = std::countr_zero(other);
            if (read_any(w, in.a, j) == read_any(w, in.a, lane)) same |= 1u << j;
        }
        all &= same == lanes;
        if (!kAll) w.row<uint32_t>(in.d)[lane] = same;
    }
    if (kAll) {
        for_lanes(lanes, [&](unsigned i) { w.row<uint32_t>(in.d)[i] = all ? lanes : 0; });
        if (in.e.present) w.mask(in.e) = (w.mask(in.e) & ~lanes) | (all ? lanes : 0);
    }
    return Step::next;
}
void decode_match(Decoder& decoder) {
    const bool all = decoder.one_of({"any", "all"}) == "all";
    if (!decoder.mod("sync")) decoder.error(".sync expected");
    const Type type = decoder.need_type();
    if (decoder.is_pair(0)) {
        const Node& pair = decoder.node(0);
        decoder.out.d = decoder.dest(pair.children[0], Type::b32);
        decoder.out.e = decoder.predicate_dest(pair.children[1]);
    } else {
        decoder.out.d = decoder.dest(0, Type::b32);
    }
    decoder.out.a = decoder.source(1, type);
    members(decoder, 2);
    decoder.set(all ? match<true> : match<false>);
}

enum class Reduce : uint32_t { add, min, max, bit_and, bit_or, bit_xor };
template <class T>
Step redux(Warp& w, const Instruction& in, uint32_t lanes) {
    const auto* a = w.row<T>(in.a);
    T result = a[std::countr_zero(lanes)];
    for (uint32_t left = lanes & (lanes - 1); left; left &= left - 1) {
        const T v = a[std::countr_zero(left)];
        switch (Reduce(in.flags)) {
            case Reduce::add:
                result = T(uint32_t(result) + uint32_t(v));
                break;
            case Reduce::min:
                result = std::min(result, v);
                break;
            case Reduce::max:
                result = std::max(result, v);
                break;
            case Reduce::bit_and:
                result &= v;
                break;
            case Reduce::bit_or:
                result |= v;
                break;
            case Reduce::bit_xor:
                result ^= v;
                break;
        }
    }
    for_lanes(lanes, [&](unsigned i) { w.row<T>(in.d)[i] = result; });
    return Step::next;
}

constexpr uint32_t kReduceMaximum = 1, kReduceAbsolute = 2, kReduceNan = 4;

/// Numbers go before NaN, or with .NaN the other way round; -0 is less than 0.
Step redux_f32(Warp& w, const Instruction& in, uint32_t lanes) {
    const bool nan_wins = in.flags & kReduceNan;
    float result = std::numeric_limits<float>::quiet_NaN();
    bool first = true;
    for (uint32_t left = lanes; left; left &= left - 1) {
        float v = w.row<float>(in.a)[std::countr_zero(left)];
        if (in.flags & kReduceAbsolute) v = std::fabs(v);
        const bool greater = v > result || (v == result && std::signbit(result) && !std::signbit(v));
        const bool less = v < result || (v == result && std::signbit(v) && !std::signbit(result));
        const bool nan_decides = std::isnan(result) ? !nan_wins : std::isnan(v) && nan_wins;
        if (first || nan_decides || (in.flags & kReduceMaximum ? greater : less)) result = v;
        first = false;
    }
    if (std::isnan(result)) result = std::bit_cast<float>(0x7fffffffu);
    for_lanes(lanes, [&](unsigned i) { w.row<float>(in.d)[i] = result; });
    return Step::next;
}

void decode_redux_f32(Decoder& decoder, std::string_view op) {
    if (op != "min" && op != "max") decoder.error("redux.f32 has min and max");
    decoder.out.flags = op == "max" ? kReduceMaximum : 0;
    if (decoder.mod("abs")) decoder.out.flags |= kReduceAbsolute;
    if (decoder.mod("NaN")) decoder.out.flags |= kReduceNan;
    decoder.set(redux_f32);
}

void decode_redux(Decoder& decoder) {
    if (!decoder.mod("sync")) decoder.error(".sync expected");
    const auto op = decoder.one_of({"add", "min", "max", "and", "or", "xor"});
    decoder.out.flags = uint32_t(op == "add"   ? Reduce::add
                                 : op == "min" ? Reduce::min
                                 : op == "max" ? Reduce::max
                                 : op == "and" ? Reduce::bit_and
                                 : op == "or"  ? Reduce::bit_or
                                               : Reduce::bit_xor);
    const Type type = decoder.need_type();
    decoder.out.d = decoder.dest(0, type);
    decoder.out.a = decoder.source(1, type);
    members(decoder, 2);
    const bool bits = op == "and" || op == "or" || op == "xor";
    if (type == Type::f32) return decode_redux_f32(decoder, op);
    if (bits ? type != Type::b32 : type != Type::s32 && type != Type::u32) decoder.error("redux has no such type");
    decoder.set(type == Type::s32 ? redux<int32_t> : redux<uint32_t>);
}

Step elect(Warp& w, const Instruction& in, uint32_t lanes) {
    const uint32_t leader = std::countr_zero(lanes);
    for_lanes(lanes, [&](unsigned i) { w.row<uint32_t>(in.d)[i] = leader; });
    w.mask(in.e) = (w.mask(in.e) & ~lanes) | 1u << leader;
    return Step::next;
}
void decode_elect(Decoder& decoder) {
    if (!decoder.mod("sync")) decoder.error(".sync expected");
    const Node& pair = decoder.node(0);
    if (pair.kind != Node::Kind::pair) decoder.error("elect.sync gives value|predicate");
    decoder.out.d = decoder.dest(pair.children[0], Type::b32);
    decoder.out.e = decoder.predicate_dest(pair.children[1]);
    members(decoder, 1);
    decoder.set(elect);
}

Step activemask(Warp& w, const Instruction& in, uint32_t lanes) {
    for_lanes(lanes, [&](unsigned i) { w.row<uint32_t>(in.d)[i] = lanes; });
    return Step::next;
}
void decode_activemask(Decoder& decoder) {
    decoder.need_type();
    decoder.out.d = decoder.dest(0, Type::b32);
    decoder.set(activemask);
}

}  // namespace

void add_warp(DecodeTable& table) {
    table["shfl"] = decode_shfl;
    table["vote"] = decode_vote;
    table["match"] = decode_match;
    table["redux"] = decode_redux;
    table["elect"] = decode_elect;
    table["activemask"] = decode_activemask;
}

}  // namespace deep_gemm::simulator
