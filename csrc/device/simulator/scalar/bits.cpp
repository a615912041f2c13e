// Bit operations: logic, shifts, fields, permutations, and the logic of predicates.
#include "integer.hpp"

namespace deep_gemm::simulator {

namespace {

template <class T>
Step bit_and(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(a & b); }>(w, in, m);
}
template <class T>
Step bit_or(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(a | b); }>(w, in, m);
}
template <class T>
Step bit_xor(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(a ^ b); }>(w, in, m);
}
template <class T>
Step bit_not(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<T, T, [](T a) { return T(~a); }>(w, in, m);
}
template <class T>
Step logical_not(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<T, T, [](T a) { return T(a == 0); }>(w, in, m);
}
template <class T>
Step shift_left(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, uint32_t, [](T a, uint32_t b) {
        return b >= sizeof(T) * 8 ? T(0) : T(uint64_t(Unsigned<T>(a)) << b);
    }>(w, in, m);
}
template <class T>
Step shift_right(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, uint32_t, [](T a, uint32_t b) {
        if (b >= sizeof(T) * 8) return T(std::is_signed_v<T> && a < T(0) ? -1 : 0);
        return T(a >> b);
    }>(w, in, m);
}
template <class T>
Step popcount(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<uint32_t, T, [](T a) { return uint32_t(std::popcount(a)); }>(w, in, m);
}
template <class T>
Step leading_zeros(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<uint32_t, T, [](T a) { return uint32_t(std::countl_zero(a)); }>(w, in, m);
}
template <class T>
uint32_t highest_bit(T a) {
    const auto bits = Unsigned<T>(std::is_signed_v<T> && a < T(0) ? ~a : a);
    return bits == 0 ? ~0u : uint32_t(sizeof(T) * 8 - 1 - std::countl_zero(bits));
}
template <class T>
Step find_bit(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<uint32_t, T, [](T a) { return highest_bit(a); }>(w, in, m);
}
template <class T>
Step find_bit_shift(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<uint32_t, T, [](T a) {
        const uint32_t bit = highest_bit(a);
        return bit == ~0u ? bit : uint32_t(sizeof(T) * 8 - 1) - bit;
    }>(w, in, m);
}
template <class T>
Step reverse_bits(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<T, T, [](T a) {
        T result = 0;
        for (unsigned i = 0; i < sizeof(T) * 8; ++i) result |= T((a >> i) & 1) << (sizeof(T) * 8 - 1 - i);
        return result;
    }>(w, in, m);
}
template <class T>
Step extract_bits(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<T, T, uint32_t, uint32_t, [](T a, uint32_t b, uint32_t c) {
        const unsigned position = b & 0xff, length = c & 0xff, top = sizeof(T) * 8 - 1;
        if (length == 0) return T(0);
        const auto bits = Unsigned<T>(a);
        const bool sign = std::is_signed_v<T> && (bits >> std::min(position + length - 1, top) & 1);
        Unsigned<T> result = (position > top) ? 0 : Unsigned<T>(bits >> position);
        const unsigned valid = std::min(length, (position > top) ? 0 : top + 1 - position);
        if (valid <= top) {
            const auto low = Unsigned<T>((uint64_t(1) << valid) - 1);
            result = Unsigned<T>(sign ? result | ~low : result & low);
        }
        return T(result);
    }>(w, in, m);
}
template <class T>
Step insert_bits(Warp& w, const Instruction& in, uint32_t lanes) {
    auto* d = w.row<T>(in.d);
    const auto *a = w.row<T>(in.a), *b = w.row<T>(in.b);
    const auto *c = w.row<uint32_t>(in.c), *x = w.row<uint32_t>(in.x);
    for_lanes(lanes, [&](unsigned i) {
        const unsigned position = c[i] & 0xff, length = x[i] & 0xff;
        T field = 0;
        for (unsigned bit = 0; bit < length && position + bit < sizeof(T) * 8; ++bit) field |= T(1) << (position + bit);
        d[i] = T((position < sizeof(T) * 8 ? (a[i] << position) & field : 0) | (b[i] & ~field));
    });
    return Step::next;
}
template <bool kClamp>
Step bit_mask(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<uint32_t, uint32_t, uint32_t, [](uint32_t a, uint32_t b) {
        if (!kClamp) a &= 31, b &= 31;
        if (a >= 32 || b == 0) return 0u;
        const uint32_t ones = b >= 32 ? ~0u : (1u << b) - 1;
        return ones << a;
    }>(w, in, m);
}
template <class T, bool kClamp>
Step sign_extend(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, uint32_t, [](T a, uint32_t b) {
        const uint32_t bits = kClamp ? std::min(b, 32u) : b & 31;
        if (bits == 0) return T(0);
        if (bits >= 32) return a;
        const unsigned shift = 32 - bits;
        return T(T(uint32_t(a) << shift) >> shift);
    }>(w, in, m);
}

uint32_t permute(uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t bytes = uint64_t(b) << 32 | a;
    uint32_t result = 0;
    for (unsigned i = 0; i < 4; ++i) {
        const uint32_t selector = c >> (4 * i) & 15;
        uint32_t byte = uint32_t(bytes >> (8 * (selector & 7))) & 0xff;
        if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

uint32_t permute_mode(std::string_view mode, uint32_t a, uint32_t b, uint32_t c) {
    static const uint16_t kForward[4] = {0x3210, 0x4321, 0x5432, 0x6543},
                          kBackward[4] = {0x5670, 0x6701, 0x7012, 0x0123},
                          kReplicate[4] = {0x0000, 0x1111, 0x2222, 0x3333},
                          kClampLeft[4] = {0x3210, 0x3211, 0x3222, 0x3333},
                          kClampRight[4] = {0x0000, 0x1110, 0x2210, 0x3210},
                          kHalves[4] = {0x1010, 0x3232, 0x1010, 0x3232};
    const uint16_t* table = mode == "f4e"   ? kForward
                            : mode == "b4e" ? kBackward
                            : mode == "rc8" ? kReplicate
                            : mode == "ecl" ? kClampLeft
                            : mode == "ecr" ? kClampRight
                                            : kHalves;
    return permute(a, b, table[c & 3]);
}

Step prmt(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<uint32_t, uint32_t, uint32_t, uint32_t, permute>(w, in, m);
}
Step prmt_mode(Warp& w, const Instruction& in, uint32_t lanes) {
    for_lanes(lanes, [&](unsigned i) {
        w.row<uint32_t>(in.d)[i] =
            permute_mode(in.extra->text, w.row<uint32_t>(in.a)[i], w.row<uint32_t>(in.b)[i], w.row<uint32_t>(in.c)[i]);
    });
    return Step::next;
}

uint32_t lookup(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    if (table & 0x01) result |= ~a & ~b & ~c;
    if (table & 0x02) result |= ~a & ~b & c;
    if (table & 0x04) result |= ~a & b & ~c;
    if (table & 0x08) result |= ~a & b & c;
    if (table & 0x10) result |= a & ~b & ~c;
    if (table & 0x20) result |= a & ~b & c;
    if (table & 0x40) result |= a & b & ~c;
    if (table & 0x80) result |= a & b & c;
    return result;
}
Step lop3(Warp& w, const Instruction& in, uint32_t lanes) {
    const uint32_t table = uint32_t(in.displacement);
    auto* d = w.row<uint32_t>(in.d);
    const auto *a = w.row<uint32_t>(in.a), *b = w.row<uint32_t>(in.b), *c = w.row<uint32_t>(in.c);
    for_lanes(lanes, [&](unsigned i) { d[i] = lookup(a[i], b[i], c[i], table); });
    return Step::next;
}

template <bool kLeft, bool kWrap>
Step funnel(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<uint32_t, uint32_t, uint32_t, uint32_t, [](uint32_t a, uint32_t b, uint32_t c) {
        const uint32_t n = kWrap ? c & 31 : std::min(c, 32u);
        const uint64_t wide = uint64_t(b) << 32 | a;
        return kLeft ? uint32_t(wide << n >> 32) : uint32_t(wide >> n);
    }>(w, in, m);
}

Step pred_and(Warp& w, const Instruction& in, uint32_t m) {
    w.mask(in.d) = (w.mask(in.d) & ~m) | (w.predicate(in.a) & w.predicate(in.b) & m);
    return Step::next;
}
Step pred_or(Warp& w, const Instruction& in, uint32_t m) {
    w.mask(in.d) = (w.mask(in.d) & ~m) | ((w.predicate(in.a) | w.predicate(in.b)) & m);
    return Step::next;
}
Step pred_xor(Warp& w, const Instruction& in, uint32_t m) {
    w.mask(in.d) = (w.mask(in.d) & ~m) | ((w.predicate(in.a) ^ w.predicate(in.b)) & m);
    return Step::next;
}
Step pred_not(Warp& w, const Instruction& in, uint32_t m) {
    w.mask(in.d) = (w.mask(in.d) & ~m) | (~w.predicate(in.a) & m);
    return Step::next;
}

void decode_logic(Decoder& decoder) {
    const auto name = decoder.mnemonic();
    const Type type = decoder.need_type();
    Instruction& out = decoder.out;
    out.d = decoder.dest(0, type);
    out.a = decoder.source(1, type);
    const bool is_unary = name == "not" || name == "cnot";
    if (!is_unary) out.b = decoder.source(2, type);
    if (type == Type::pred) {
        decoder.set(name == "and" ? pred_and : name == "or" ? pred_or : name == "xor" ? pred_xor : pred_not);
        return;
    }
#define CALL(T)                              \
    decoder.set(name == "and"   ? bit_and<T> \
                : name == "or"  ? bit_or<T>  \
                : name == "xor" ? bit_xor<T> \
                : name == "not" ? bit_not<T> \
                                : logical_not<T>);
    EACH_INTEGER(type, CALL)
#undef CALL
}

void decode_shift(Decoder& decoder) {
    const bool left = decoder.mnemonic() == "shl";
    const Type type = decoder.need_type();
    decoder.out.d = decoder.dest(0, type);
    decoder.out.a = decoder.source(1, type);
    decoder.out.b = decoder.source(2, Type::u32);
#define CALL(T) decoder.set(left ? shift_left<T> : shift_right<T>);
    EACH_INTEGER(type, CALL)
#undef CALL
}

void decode_bits(Decoder& decoder) {
    const auto name = decoder.mnemonic();
    const bool shift_amount = decoder.mod("shiftamt");
    const Type type = decoder.need_type();
    const bool wide = type_bytes(type) == 8, is_signed_type = is_signed(type);
    Instruction& out = decoder.out;
    out.a = decoder.source(1, type);
    out.d = decoder.dest(0, name == "brev" || name == "bfe" || name == "bfi" ? type : Type::u32);
    if (name == "popc")
        decoder.set(wide ? popcount<uint64_t> : popcount<uint32_t>);
    else if (name == "clz")
        decoder.set(wide ? leading_zeros<uint64_t> : leading_zeros<uint32_t>);
    else if (name == "brev")
        decoder.set(wide ? reverse_bits<uint64_t> : reverse_bits<uint32_t>);
    else if (name == "bfind") {
        if (shift_amount)
            decoder.set(wide ? (is_signed_type ? find_bit_shift<int64_t> : find_bit_shift<uint64_t>)
                             : (is_signed_type ? find_bit_shift<int32_t> : find_bit_shift<uint32_t>));
        else
            decoder.set(wide ? (is_signed_type ? find_bit<int64_t> : find_bit<uint64_t>)
                             : (is_signed_type ? find_bit<int32_t> : find_bit<uint32_t>));
    } else if (name == "bfe") {
        out.b = decoder.source(2, Type::u32);
        out.c = decoder.source(3, Type::u32);
        decoder.set(wide ? (is_signed_type ? extract_bits<int64_t> : extract_bits<uint64_t>)
                         : (is_signed_type ? extract_bits<int32_t> : extract_bits<uint32_t>));
    } else {
        out.b = decoder.source(2, type);
        out.c = decoder.source(3, Type::u32);
        out.x = decoder.source(4, Type::u32);
        decoder.set(wide ? insert_bits<uint64_t> : insert_bits<uint32_t>);
    }
}

void decode_bmsk(Decoder& decoder) {
    const bool clamp = decoder.one_of({"clamp", "wrap"}) == "clamp";
    binary_operands(decoder, decoder.need_type());
    decoder.set(clamp ? bit_mask<true> : bit_mask<false>);
}

void decode_szext(Decoder& decoder) {
    const bool clamp = decoder.one_of({"clamp", "wrap"}) == "clamp";
    const Type type = decoder.need_type();
    decoder.out.d = decoder.dest(0, type);
    decoder.out.a = decoder.source(1, type);
    decoder.out.b = decoder.source(2, Type::u32);
    if (type == Type::s32)
        decoder.set(clamp ? sign_extend<int32_t, true> : sign_extend<int32_t, false>);
    else
        decoder.set(clamp ? sign_extend<uint32_t, true> : sign_extend<uint32_t, false>);
}

void decode_prmt(Decoder& decoder) {
    decoder.need_type();
    const auto mode = decoder.one_of({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
    binary_operands(decoder, Type::b32);
    decoder.out.c = decoder.source(3, Type::b32);
    decoder.set(prmt);
    if (!mode.empty()) {
        decoder.extra().text = std::string(mode);
        decoder.set(prmt_mode);
    }
}

void decode_lop3(Decoder& decoder) {
    decoder.need_type();
    binary_operands(decoder, Type::b32);
    decoder.out.c = decoder.source(3, Type::b32);
    decoder.out.displacement = decoder.constant(4);
    decoder.set(lop3);
}

void decode_shf(Decoder& decoder) {
    const bool left = decoder.one_of({"l", "r"}) == "l", wrap = decoder.one_of({"wrap", "clamp"}) == "wrap";
    decoder.need_type();
    binary_operands(decoder, Type::b32);
    decoder.out.c = decoder.source(3, Type::u32);
    decoder.set(left ? (wrap ? funnel<true, true> : funnel<true, false>)
                     : (wrap ? funnel<false, true> : funnel<false, false>));
}

}  // namespace

void add_bits(DecodeTable& table) {
    table["and"] = table["or"] = table["xor"] = table["not"] = table["cnot"] = decode_logic;
    table["shl"] = table["shr"] = decode_shift;
    table["popc"] = table["clz"] = table["brev"] = table["bfind"] = table["bfe"] = table["bfi"] = decode_bits;
    table["bmsk"] = decode_bmsk;
    table["szext"] = decode_szext;
    table["prmt"] = decode_prmt;
    table["lop3"] = decode_lop3;
    table["shf"] = decode_shf;
}

}  // namespace deep_gemm::simulator
