// Comparison and selection: setp, set, selp, slct.
#include <cmath>
#include <type_traits>
#include <utility>

#include "../core/execute.hpp"

namespace deep_gemm::simulator {

namespace {

/// Those that an integer has come first, and at the same distance the same ones for numbers of which one is a NaN.
/// "Greater" is "less" with the operands exchanged.
enum class Compare : uint32_t { eq, ne, lt, le, equ, neu, ltu, leu, num, nan };
enum : uint32_t { kAnd = 32, kOr = 64, kXor = 128, kFlushInputs = 256 };

template <class T>
struct ValueOf {
    using type = T;
    static T read(T v) { return v; }
};
struct HalfBits {
    uint16_t bits;
};
struct BfloatBits {
    uint16_t bits;
};
template <>
struct ValueOf<HalfBits> {
    using type = float;
    static float read(HalfBits v) { return half_to_float(v.bits); }
};
template <>
struct ValueOf<BfloatBits> {
    using type = float;
    static float read(BfloatBits v) { return bf16_to_float(v.bits); }
};

template <class T, Compare kCompare>
bool holds(T a, T b) {
    bool unordered = false;
    if constexpr (std::is_floating_point_v<T>) unordered = std::isnan(a) || std::isnan(b);
    switch (kCompare) {
        case Compare::eq:
            return a == b;
        case Compare::ne:
            return a != b && !unordered;
        case Compare::lt:
            return a < b;
        case Compare::le:
            return a <= b;
        case Compare::equ:
            return a == b || unordered;
        case Compare::neu:
            return a != b || unordered;
        case Compare::ltu:
            return a < b || unordered;
        case Compare::leu:
            return a <= b || unordered;
        case Compare::num:
            return !unordered;
        case Compare::nan:
            return unordered;
    }
    return false;
}

template <class T>
T flush_input(T v) {
    if constexpr (std::is_floating_point_v<T>)
        return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(T(0), v) : v;
    else
        return v;
}

template <class T, Compare kCompare>
[[gnu::noinline]] uint32_t compare_lanes(Warp& w, const Instruction& in, uint32_t lanes) {
    using Value = typename ValueOf<T>::type;
    const auto *a = w.row<Storage<T>>(in.a), *b = w.row<Storage<T>>(in.b);
    uint32_t result = 0;
    for_lanes(lanes, [&](unsigned i) {
        Value x = ValueOf<T>::read(get<T>(a, i)), y = ValueOf<T>::read(get<T>(b, i));
        if (in.flags & kFlushInputs) x = flush_input(x), y = flush_input(y);
        result |= uint32_t(holds<Value, kCompare>(x, y)) << i;
    });
    return result;
}

template <class T, Compare kCompare>
Step setp(Warp& w, const Instruction& in, uint32_t lanes) {
    uint32_t yes = compare_lanes<T, kCompare>(w, in, lanes), no = ~yes;
    if (in.c.present) {
        const uint32_t c = w.predicate(in.c);
        if (in.flags & kAnd)
            yes &= c, no &= c;
        else if (in.flags & kOr)
            yes |= c, no |= c;
        else
            yes ^= c, no ^= c;
    }
    w.mask(in.d) = (w.mask(in.d) & ~lanes) | (yes & lanes);
    if (in.e.present) w.mask(in.e) = (w.mask(in.e) & ~lanes) | (no & lanes);
    return Step::next;
}

template <class T, Compare kCompare>
Step set(Warp& w, const Instruction& in, uint32_t lanes) {
    uint32_t yes = compare_lanes<T, kCompare>(w, in, lanes);
    if (in.c.present) {
        const uint32_t c = w.predicate(in.c);
        yes = in.flags & kAnd ? yes & c : in.flags & kOr ? yes | c : yes ^ c;
    }
    const uint32_t one = uint32_t(in.displacement);
    for_lanes(lanes, [&](unsigned i) { w.row<uint32_t>(in.d)[i] = yes >> i & 1 ? one : 0; });
    return Step::next;
}

// f16x2 / bf16x2 comparison: p|q get the two halves.
template <class T, Compare kCompare>
Step setp_pair(Warp& w, const Instruction& in, uint32_t lanes) {
    uint32_t low = 0, high = 0;
    for_lanes(lanes, [&](unsigned i) {
        const uint32_t a = w.row<uint32_t>(in.a)[i], b = w.row<uint32_t>(in.b)[i];
        const auto value = [](uint32_t bits) { return ValueOf<T>::read(T{uint16_t(bits)}); };
        low |= uint32_t(holds<float, kCompare>(value(a), value(b))) << i;
        high |= uint32_t(holds<float, kCompare>(value(a >> 16), value(b >> 16))) << i;
    });
    w.mask(in.d) = (w.mask(in.d) & ~lanes) | (low & lanes);
    if (in.e.present) w.mask(in.e) = (w.mask(in.e) & ~lanes) | (high & lanes);
    return Step::next;
}

// Integers have no NaN: the first four comparisons are all that they need.
constexpr uint32_t kOrdered = 4, kComparisons = 10;

template <class T, uint32_t... I>
Handler pick_compare(Compare compare, bool predicate, std::integer_sequence<uint32_t, I...>) {
    constexpr Handler kSetp[] = {setp<T, Compare(I)>...}, kSet[] = {set<T, Compare(I)>...};
    return (predicate ? kSetp : kSet)[uint32_t(compare) % sizeof...(I)];
}

template <class T>
Handler pick_compare(Decoder& decoder, Compare compare, bool predicate) {
    constexpr bool kIsInteger = std::is_integral_v<T>;
    constexpr uint32_t kCount = kIsInteger ? kOrdered : kComparisons;
    if (kIsInteger && (compare == Compare::num || compare == Compare::nan)) decoder.error("no integer is a NaN");
    return pick_compare<T>(compare, predicate, std::make_integer_sequence<uint32_t, kCount>());
}

template <class T, uint32_t... I>
Handler pick_pair(Compare compare, std::integer_sequence<uint32_t, I...>) {
    constexpr Handler kSetp[] = {setp_pair<T, Compare(I)>...};
    return kSetp[uint32_t(compare)];
}

template <class T>
Handler pick_pair(Compare compare) {
    return pick_pair<T>(compare, std::make_integer_sequence<uint32_t, kComparisons>());
}

/// A comparison as it is written.
struct Order {
    std::string_view name;
    Compare compare;
    bool exchanged = false;  // a > b is b < a
};

const Order& take_order(Decoder& decoder) {
    static constexpr Order kOrders[] = {
        {"equ", Compare::equ},       {"neu", Compare::neu},       {"ltu", Compare::ltu}, {"leu", Compare::leu},
        {"gtu", Compare::ltu, true}, {"geu", Compare::leu, true}, {"num", Compare::num}, {"nan", Compare::nan},
        {"eq", Compare::eq},         {"ne", Compare::ne},         {"lt", Compare::lt},   {"le", Compare::le},
        {"gt", Compare::lt, true},   {"ge", Compare::le, true},   {"lo", Compare::lt},   {"ls", Compare::le},
        {"hi", Compare::lt, true},   {"hs", Compare::le, true}};
    for (const Order& order : kOrders)
        if (decoder.mod(order.name)) return order;
    decoder.error("no comparison");
}

void take_compared(Decoder& decoder, Type type, const Order& order) {
    decoder.out.a = decoder.source(order.exchanged ? 2 : 1, type);
    decoder.out.b = decoder.source(order.exchanged ? 1 : 2, type);
}

void take_boolean(Decoder& decoder, size_t operand) {
    const auto name = decoder.one_of({"and", "or", "xor"});
    if (name.empty()) return;
    decoder.out.flags |= name == "and" ? kAnd : name == "or" ? kOr : kXor;
    decoder.out.c = decoder.predicate(operand);
}

void choose(Decoder& decoder, Type type, Compare compare, bool predicate) {
    switch (type) {
        case Type::u16:
        case Type::b16:
            decoder.set(pick_compare<uint16_t>(decoder, compare, predicate));
            break;
        case Type::s16:
            decoder.set(pick_compare<int16_t>(decoder, compare, predicate));
            break;
        case Type::u32:
        case Type::b32:
            decoder.set(pick_compare<uint32_t>(decoder, compare, predicate));
            break;
        case Type::s32:
            decoder.set(pick_compare<int32_t>(decoder, compare, predicate));
            break;
        case Type::u64:
        case Type::b64:
            decoder.set(pick_compare<uint64_t>(decoder, compare, predicate));
            break;
        case Type::s64:
            decoder.set(pick_compare<int64_t>(decoder, compare, predicate));
            break;
        case Type::f32:
            decoder.set(pick_compare<float>(decoder, compare, predicate));
            break;
        case Type::f64:
            decoder.set(pick_compare<double>(decoder, compare, predicate));
            break;
        case Type::f16:
            decoder.set(pick_compare<HalfBits>(decoder, compare, predicate));
            break;
        case Type::bf16:
            decoder.set(pick_compare<BfloatBits>(decoder, compare, predicate));
            break;
        case Type::f16x2:
            decoder.set(pick_pair<HalfBits>(compare));
            break;
        case Type::bf16x2:
            decoder.set(pick_pair<BfloatBits>(compare));
            break;
        default:
            decoder.error("this type cannot be compared");
    }
}

void decode_setp(Decoder& decoder) {
    const Order& order = take_order(decoder);
    if (decoder.mod("ftz")) decoder.out.flags |= kFlushInputs;
    const Type type = decoder.need_type();
    if (decoder.is_pair(0)) {
        const Node& pair = decoder.node(0);
        decoder.out.d = decoder.predicate_dest(pair.children[0]);
        decoder.out.e = decoder.predicate_dest(pair.children[1]);
    } else {
        decoder.out.d = decoder.predicate_dest(decoder.node(0));
    }
    take_compared(decoder, type, order);
    take_boolean(decoder, 3);
    choose(decoder, type, order.compare, true);
}

void decode_set(Decoder& decoder) {
    const Order& order = take_order(decoder);
    take_boolean(decoder, 3);
    if (decoder.mod("ftz")) decoder.out.flags |= kFlushInputs;
    const Type result = decoder.need_type(), type = decoder.need_type();
    decoder.out.displacement = result == Type::f32       ? 0x3f800000
                               : result == Type::f16     ? 0x3c00
                               : result == Type::bf16    ? 0x3f80
                               : type_bytes(result) == 2 ? 0xffff
                                                         : 0xffffffff;
    decoder.out.d = decoder.dest(0, result);
    take_compared(decoder, type, order);
    choose(decoder, type, order.compare, false);
}

template <class T>
Step selp(Warp& w, const Instruction& in, uint32_t lanes) {
    auto* d = w.row<T>(in.d);
    const auto *a = w.row<T>(in.a), *b = w.row<T>(in.b);
    const uint32_t c = w.predicate(in.c);
    for_lanes(lanes, [&](unsigned i) { d[i] = c >> i & 1 ? a[i] : b[i]; });
    return Step::next;
}

void decode_selp(Decoder& decoder) {
    const Type type = decoder.need_type();
    decoder.out.d = decoder.dest(0, type);
    decoder.out.a = decoder.source(1, type);
    decoder.out.b = decoder.source(2, type);
    decoder.out.c = decoder.predicate(3);
    decoder.out.is_select = true;
    decoder.set(type_bytes(type) == 8 ? selp<uint64_t> : selp<uint32_t>);
}

template <class T, class C>
Step slct(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<T, T, T, C, [](T a, T b, C c) { return c >= C(0) ? a : b; }>(w, in, m);
}

void decode_slct(Decoder& decoder) {
    if (decoder.mod("ftz")) decoder.out.flags = 0;
    const Type type = decoder.need_type(), condition = decoder.need_type();
    decoder.out.d = decoder.dest(0, type);
    decoder.out.a = decoder.source(1, type);
    decoder.out.b = decoder.source(2, type);
    decoder.out.c = decoder.source(3, condition);
    const bool wide = type_bytes(type) == 8;
    if (condition == Type::f32)
        decoder.set(wide ? slct<uint64_t, float> : slct<uint32_t, float>);
    else
        decoder.set(wide ? slct<uint64_t, int32_t> : slct<uint32_t, int32_t>);
}

}  // namespace

void add_compare(DecodeTable& table) {
    table["setp"] = decode_setp;
    table["set"] = decode_set;
    table["selp"] = decode_selp;
    table["slct"] = decode_slct;
}

}  // namespace deep_gemm::simulator
