// Integer arithmetic, bit operations, and the carry chain.
#include "execute.hpp"

namespace deep_gemm::simulator {

namespace {

template <class T> using Unsigned = std::make_unsigned_t<T>;
using int128 = __int128;
using uint128 = unsigned __int128;

#define EACH_INTEGER(type, call)                            \
    switch (type) {                                         \
        case Type::u16: case Type::b16: call(uint16_t) break; \
        case Type::s16: call(int16_t) break;                \
        case Type::u32: case Type::b32: call(uint32_t) break; \
        case Type::s32: call(int32_t) break;                \
        case Type::u64: case Type::b64: call(uint64_t) break; \
        case Type::s64: call(int64_t) break;                \
        default: decoder.error("integer type expected");    \
    }

template <class T> Step add(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(Unsigned<T>(a) + Unsigned<T>(b)); }>(w, in, m);
}
template <class T> Step sub(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(Unsigned<T>(a) - Unsigned<T>(b)); }>(w, in, m);
}
template <class T> Step mul_lo(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(uint64_t(Unsigned<T>(a)) * uint64_t(Unsigned<T>(b))); }>(w, in, m);
}
template <class T> T high_product(T a, T b) {
    using Wide = std::conditional_t<std::is_signed_v<T>, int128, uint128>;
    return T(Wide(a) * Wide(b) >> (sizeof(T) * 8));
}
template <class T> Step mul_hi(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return high_product(a, b); }>(w, in, m);
}
template <class T> struct WidenedOf;
template <> struct WidenedOf<uint16_t> { using type = uint32_t; };
template <> struct WidenedOf<int16_t> { using type = int32_t; };
template <> struct WidenedOf<uint32_t> { using type = uint64_t; };
template <> struct WidenedOf<int32_t> { using type = int64_t; };
template <class T> using Widened = typename WidenedOf<T>::type;
template <class T> Step mul_wide(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<Widened<T>, T, T, [](T a, T b) { return Widened<T>(a) * Widened<T>(b); }>(w, in, m);
}
template <class T> Step mad_lo(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<T, T, T, T, [](T a, T b, T c) {
        return T(uint64_t(Unsigned<T>(a)) * uint64_t(Unsigned<T>(b)) + uint64_t(Unsigned<T>(c))); }>(w, in, m);
}
template <class T> Step mad_hi(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<T, T, T, T, [](T a, T b, T c) {
        return T(Unsigned<T>(high_product(a, b)) + Unsigned<T>(c)); }>(w, in, m);
}
template <class T> Step mad_wide(Warp& w, const Instruction& in, uint32_t m) {
    using W = Widened<T>;
    return ternary_op<W, T, T, W, [](T a, T b, W c) {
        return W(std::make_unsigned_t<W>(W(a) * W(b)) + std::make_unsigned_t<W>(c)); }>(w, in, m);
}
// Division by zero gives all ones, as the GPU does; the most negative number divided by -1 wraps.
template <class T> Step divide(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) {
        if (b == 0) return T(~T(0));
        if constexpr (std::is_signed_v<T>) if (b == T(-1)) return T(0 - Unsigned<T>(a));
        return T(a / b); }>(w, in, m);
}
template <class T> Step remainder(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) {
        if (b == 0) return a;
        if constexpr (std::is_signed_v<T>) if (b == T(-1)) return T(0);
        return T(a % b); }>(w, in, m);
}
template <class T> Step minimum(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return a < b ? a : b; }>(w, in, m);
}
template <class T> Step maximum(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return (a > b) ? a : b; }>(w, in, m);
}
template <class T> Step minimum_relu(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return std::max(a < b ? a : b, T(0)); }>(w, in, m);
}
template <class T> Step maximum_relu(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return std::max((a > b) ? a : b, T(0)); }>(w, in, m);
}
template <class T> Step negate(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<T, T, [](T a) { return T(0 - Unsigned<T>(a)); }>(w, in, m);
}
template <class T> Step absolute(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<T, T, [](T a) { return a < T(0) ? T(0 - Unsigned<T>(a)) : a; }>(w, in, m);
}
template <class T> Step sad(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<T, T, T, T, [](T a, T b, T c) { return T(c + (a < b ? b - a : a - b)); }>(w, in, m);
}
template <class T> Step bit_and(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(a & b); }>(w, in, m);
}
template <class T> Step bit_or(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(a | b); }>(w, in, m);
}
template <class T> Step bit_xor(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(a ^ b); }>(w, in, m);
}
template <class T> Step bit_not(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<T, T, [](T a) { return T(~a); }>(w, in, m);
}
template <class T> Step logical_not(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<T, T, [](T a) { return T(a == 0); }>(w, in, m);
}
template <class T> Step shift_left(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, uint32_t, [](T a, uint32_t b) {
        return b >= sizeof(T) * 8 ? T(0) : T(uint64_t(Unsigned<T>(a)) << b); }>(w, in, m);
}
template <class T> Step shift_right(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, uint32_t, [](T a, uint32_t b) {
        if (b >= sizeof(T) * 8) return T(std::is_signed_v<T> && a < T(0) ? -1 : 0);
        return T(a >> b); }>(w, in, m);
}
template <class T> Step popcount(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<uint32_t, T, [](T a) { return uint32_t(std::popcount(a)); }>(w, in, m);
}
template <class T> Step leading_zeros(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<uint32_t, T, [](T a) { return uint32_t(std::countl_zero(a)); }>(w, in, m);
}
template <class T> uint32_t highest_bit(T a) {
    const auto bits = Unsigned<T>(std::is_signed_v<T> && a < T(0) ? ~a : a);
    return bits == 0 ? ~0u : uint32_t(sizeof(T) * 8 - 1 - std::countl_zero(bits));
}
template <class T> Step find_bit(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<uint32_t, T, [](T a) { return highest_bit(a); }>(w, in, m);
}
template <class T> Step find_bit_shift(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<uint32_t, T, [](T a) {
        const uint32_t bit = highest_bit(a);
        return bit == ~0u ? bit : uint32_t(sizeof(T) * 8 - 1) - bit; }>(w, in, m);
}
template <class T> Step reverse_bits(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<T, T, [](T a) {
        T result = 0;
        for (unsigned i = 0; i < sizeof(T) * 8; ++i) result |= T((a >> i) & 1) << (sizeof(T) * 8 - 1 - i);
        return result; }>(w, in, m);
}
template <class T> Step extract_bits(Warp& w, const Instruction& in, uint32_t m) {
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
        return T(result); }>(w, in, m);
}
template <class T> Step insert_bits(Warp& w, const Instruction& in, uint32_t lanes) {
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
template <bool kClamp> Step bit_mask(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<uint32_t, uint32_t, uint32_t, [](uint32_t a, uint32_t b) {
        if (!kClamp) a &= 31, b &= 31;
        if (a >= 32 || b == 0) return 0u;
        const uint32_t ones = b >= 32 ? ~0u : (1u << b) - 1;
        return ones << a; }>(w, in, m);
}
template <class T, bool kClamp> Step sign_extend(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, uint32_t, [](T a, uint32_t b) {
        const uint32_t bits = kClamp ? std::min(b, 32u) : b & 31;
        if (bits == 0) return T(0);
        if (bits >= 32) return a;
        const unsigned shift = 32 - bits;
        return T(T(uint32_t(a) << shift) >> shift); }>(w, in, m);
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
    static const uint16_t kForward[4] = {0x3210, 0x4321, 0x5432, 0x6543}, kBackward[4] = {0x5670, 0x6701, 0x7012, 0x0123},
                          kReplicate[4] = {0x0000, 0x1111, 0x2222, 0x3333}, kClampLeft[4] = {0x3210, 0x3211, 0x3222, 0x3333},
                          kClampRight[4] = {0x0000, 0x1110, 0x2210, 0x3210}, kHalves[4] = {0x1010, 0x3232, 0x1010, 0x3232};
    const uint16_t* table = mode == "f4e" ? kForward : mode == "b4e" ? kBackward : mode == "rc8" ? kReplicate
                          : mode == "ecl" ? kClampLeft : mode == "ecr" ? kClampRight : kHalves;
    return permute(a, b, table[c & 3]);
}

Step prmt(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<uint32_t, uint32_t, uint32_t, uint32_t, permute>(w, in, m);
}
Step prmt_mode(Warp& w, const Instruction& in, uint32_t lanes) {
    for_lanes(lanes, [&](unsigned i) {
        w.row<uint32_t>(in.d)[i] = permute_mode(in.extra->text, w.row<uint32_t>(in.a)[i], w.row<uint32_t>(in.b)[i], w.row<uint32_t>(in.c)[i]);
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

template <bool kLeft, bool kWrap> Step funnel(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<uint32_t, uint32_t, uint32_t, uint32_t, [](uint32_t a, uint32_t b, uint32_t c) {
        const uint32_t n = kWrap ? c & 31 : std::min(c, 32u);
        const uint64_t wide = uint64_t(b) << 32 | a;
        return kLeft ? uint32_t(wide << n >> 32) : uint32_t(wide >> n); }>(w, in, m);
}

// The carry flag is one bit a lane.
constexpr uint32_t kCarryOut = 1, kCarryIn = 2, kSubtract = 4, kMultiplyLow = 8, kMultiplyHigh = 16;
template <class T> Step carry_op(Warp& w, const Instruction& in, uint32_t lanes) {
    using U = Unsigned<T>;
    for_lanes(lanes, [&](unsigned i) {
        U a = U(w.row<T>(in.a)[i]), b = U(w.row<T>(in.b)[i]);
        const bool carry = in.flags & kCarryIn && w.carry >> i & 1;
        if (in.flags & (kMultiplyLow | kMultiplyHigh)) {
            a = in.flags & kMultiplyLow ? U(a * b) : U(high_product<T>(T(a), T(b)));
            b = U(w.row<T>(in.c)[i]);
        }
        const uint128 wide = in.flags & kSubtract ? uint128(a) - uint128(b) - carry : uint128(a) + uint128(b) + carry;
        w.row<T>(in.d)[i] = T(U(wide));
        if (in.flags & kCarryOut) w.carry = (w.carry & ~(1u << i)) | uint32_t(wide >> (sizeof(T) * 8) & 1) << i;
    });
    return Step::next;
}

template <class A, class B> Step dot4(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<int32_t, uint32_t, uint32_t, int32_t, [](uint32_t a, uint32_t b, int32_t c) {
        for (int i = 0; i < 4; ++i) c += int32_t(A(a >> (8 * i))) * int32_t(B(b >> (8 * i)));
        return c; }>(w, in, m);
}

template <class T, int kOp> Step packed16(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<uint32_t, uint32_t, uint32_t, [](uint32_t a, uint32_t b) {
        uint32_t result = 0;
        for (int half = 0; half < 2; ++half) {
            const T x = T(a >> (16 * half)), y = T(b >> (16 * half));
            const T r = kOp == 0 ? T(x + y) : kOp == 1 ? std::min(x, y) : std::max(x, y);
            result |= uint32_t(uint16_t(r)) << (16 * half);
        }
        return result; }>(w, in, m);
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

void binary_operands(Decoder& decoder, Type type) {
    decoder.out.d = decoder.dest(0, type);
    decoder.out.a = decoder.source(1, type);
    decoder.out.b = decoder.source(2, type);
}

}  // namespace

// Integer and floating-point instructions share add, sub, mul ...; the type decides. float.cpp decodes its own.
bool decode_float_arithmetic(Decoder& decoder, Type type);

namespace {

void decode_add_sub(Decoder& decoder) {
    const bool is_add = decoder.mnemonic() == "add";
    const bool carry_out = decoder.mod("cc");
    const Type type = decoder.need_type();
    if (decode_float_arithmetic(decoder, type)) return;
    binary_operands(decoder, type);
    if (carry_out) {
        decoder.out.flags = kCarryOut | (is_add ? 0 : kSubtract);
#define CALL(T) decoder.set(carry_op<T>);
        EACH_INTEGER(type, CALL)
#undef CALL
        return;
    }
    if (type == Type::u16x2 || type == Type::s16x2) {
        if (!is_add) decoder.error("not supported");
        decoder.set(packed16<uint16_t, 0>);
        return;
    }
#define CALL(T) decoder.set(is_add ? add<T> : sub<T>);
    if (decoder.mod("sat")) decoder.error("saturating integer arithmetic is not supported");
    EACH_INTEGER(type, CALL)
#undef CALL
}

void decode_carry(Decoder& decoder) {
    const bool subtract = decoder.mnemonic() == "subc";
    decoder.out.flags = kCarryIn | (decoder.mod("cc") ? kCarryOut : 0) | (subtract ? kSubtract : 0);
    const Type type = decoder.need_type();
    binary_operands(decoder, type);
#define CALL(T) decoder.set(carry_op<T>);
    EACH_INTEGER(type, CALL)
#undef CALL
}

void decode_mul(Decoder& decoder) {
    const auto part = decoder.one_of({"lo", "hi", "wide"});
    const Type type = decoder.need_type();
    if (part.empty() && decode_float_arithmetic(decoder, type)) return;
    Instruction& out = decoder.out;
    out.a = decoder.source(1, type);
    out.b = decoder.source(2, type);
    if (part == "wide") {
        switch (type) {
            case Type::u16: out.d = decoder.dest(0, Type::u32); decoder.set(mul_wide<uint16_t>); break;
            case Type::s16: out.d = decoder.dest(0, Type::s32); decoder.set(mul_wide<int16_t>); break;
            case Type::u32: out.d = decoder.dest(0, Type::u64); decoder.set(mul_wide<uint32_t>); break;
            case Type::s32: out.d = decoder.dest(0, Type::s64); decoder.set(mul_wide<int32_t>); break;
            default: decoder.error("wide multiplication of this type does not exist");
        }
        return;
    }
    out.d = decoder.dest(0, type);
#define CALL(T) decoder.set(part == "hi" ? mul_hi<T> : mul_lo<T>);
    EACH_INTEGER(type, CALL)
#undef CALL
}

// Products of the low 24 bits of each operand.
void decode_mul24(Decoder& decoder) {
    if (!decoder.mod("lo")) decoder.error("only mul24.lo is supported");
    const Type type = decoder.need_type();
    binary_operands(decoder, type);
    if (type == Type::s32)
        decoder.set(binary_op<int32_t, int32_t, int32_t, [](int32_t a, int32_t b) { return uint32_t(a << 8 >> 8) * uint32_t(b << 8 >> 8); }>);
    else
        decoder.set(binary_op<uint32_t, uint32_t, uint32_t, [](uint32_t a, uint32_t b) { return (a & 0xffffff) * (b & 0xffffff); }>);
}

void decode_mad(Decoder& decoder) {
    const auto part = decoder.one_of({"lo", "hi", "wide"});
    const bool carry_out = decoder.mod("cc"), carry_in = decoder.mnemonic() == "madc";
    const Type type = decoder.need_type();
    if (part.empty() && decode_float_arithmetic(decoder, type)) return;
    Instruction& out = decoder.out;
    out.a = decoder.source(1, type);
    out.b = decoder.source(2, type);
    if (part == "wide") {
        const Type wide = type == Type::u16 ? Type::u32 : type == Type::s16 ? Type::s32 : type == Type::u32 ? Type::u64 : Type::s64;
        out.d = decoder.dest(0, wide);
        out.c = decoder.source(3, wide);
        switch (type) {
            case Type::u16: decoder.set(mad_wide<uint16_t>); break;
            case Type::s16: decoder.set(mad_wide<int16_t>); break;
            case Type::u32: decoder.set(mad_wide<uint32_t>); break;
            case Type::s32: decoder.set(mad_wide<int32_t>); break;
            default: decoder.error("wide multiplication of this type does not exist");
        }
        return;
    }
    out.d = decoder.dest(0, type);
    out.c = decoder.source(3, type);
    if (carry_in || carry_out) {
        out.flags = (carry_in ? kCarryIn : 0) | (carry_out ? kCarryOut : 0) | (part == "hi" ? kMultiplyHigh : kMultiplyLow);
#define CALL(T) decoder.set(carry_op<T>);
        EACH_INTEGER(type, CALL)
#undef CALL
        return;
    }
#define CALL(T) decoder.set(part == "hi" ? mad_hi<T> : mad_lo<T>);
    EACH_INTEGER(type, CALL)
#undef CALL
}

void decode_div_rem(Decoder& decoder) {
    const bool is_div = decoder.mnemonic() == "div";
    const Type type = decoder.need_type();
    if (decode_float_arithmetic(decoder, type)) return;
    binary_operands(decoder, type);
#define CALL(T) decoder.set(is_div ? divide<T> : remainder<T>);
    EACH_INTEGER(type, CALL)
#undef CALL
}

void decode_min_max(Decoder& decoder) {
    const bool is_min = decoder.mnemonic() == "min";
    const Type type = decoder.need_type();
    if (decode_float_arithmetic(decoder, type)) return;
    binary_operands(decoder, type);
    if (decoder.mod("relu")) {
        if (type != Type::s32) decoder.error("only .s32 has .relu");
        decoder.set(is_min ? minimum_relu<int32_t> : maximum_relu<int32_t>);
        return;
    }
    if (type == Type::u16x2) return decoder.set(is_min ? packed16<uint16_t, 1> : packed16<uint16_t, 2>);
    if (type == Type::s16x2) return decoder.set(is_min ? packed16<int16_t, 1> : packed16<int16_t, 2>);
#define CALL(T) decoder.set(is_min ? minimum<T> : maximum<T>);
    EACH_INTEGER(type, CALL)
#undef CALL
}

void decode_neg_abs(Decoder& decoder) {
    const bool is_neg = decoder.mnemonic() == "neg";
    const Type type = decoder.need_type();
    if (decode_float_arithmetic(decoder, type)) return;
    decoder.out.d = decoder.dest(0, type);
    decoder.out.a = decoder.source(1, type);
#define CALL(T) decoder.set(is_neg ? negate<T> : absolute<T>);
    EACH_INTEGER(type, CALL)
#undef CALL
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
#define CALL(T) decoder.set(name == "and" ? bit_and<T> : name == "or" ? bit_or<T> : name == "xor" ? bit_xor<T> : name == "not" ? bit_not<T> : logical_not<T>);
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
    if (name == "popc") decoder.set(wide ? popcount<uint64_t> : popcount<uint32_t>);
    else if (name == "clz") decoder.set(wide ? leading_zeros<uint64_t> : leading_zeros<uint32_t>);
    else if (name == "brev") decoder.set(wide ? reverse_bits<uint64_t> : reverse_bits<uint32_t>);
    else if (name == "bfind") {
        if (shift_amount) decoder.set(wide ? (is_signed_type ? find_bit_shift<int64_t> : find_bit_shift<uint64_t>)
                                           : (is_signed_type ? find_bit_shift<int32_t> : find_bit_shift<uint32_t>));
        else decoder.set(wide ? (is_signed_type ? find_bit<int64_t> : find_bit<uint64_t>)
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
    if (type == Type::s32) decoder.set(clamp ? sign_extend<int32_t, true> : sign_extend<int32_t, false>);
    else decoder.set(clamp ? sign_extend<uint32_t, true> : sign_extend<uint32_t, false>);
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
    decoder.set(left ? (wrap ? funnel<true, true> : funnel<true, false>) : (wrap ? funnel<false, true> : funnel<false, false>));
}

void decode_sad(Decoder& decoder) {
    const Type type = decoder.need_type();
    binary_operands(decoder, type);
    decoder.out.c = decoder.source(3, type);
#define CALL(T) decoder.set(sad<T>);
    EACH_INTEGER(type, CALL)
#undef CALL
}

void decode_dp4a(Decoder& decoder) {
    const bool a = is_signed(decoder.need_type()), b = is_signed(decoder.need_type());
    binary_operands(decoder, Type::b32);
    decoder.out.c = decoder.source(3, Type::b32);
    decoder.set(a ? (b ? dot4<int8_t, int8_t> : dot4<int8_t, uint8_t>) : (b ? dot4<uint8_t, int8_t> : dot4<uint8_t, uint8_t>));
}

}  // namespace

void add_integer(DecodeTable& table) {
    table["add"] = table["sub"] = decode_add_sub;
    table["addc"] = table["subc"] = decode_carry;
    table["mul"] = decode_mul;
    table["mul24"] = decode_mul24;
    table["mad"] = table["madc"] = decode_mad;
    table["div"] = table["rem"] = decode_div_rem;
    table["min"] = table["max"] = decode_min_max;
    table["neg"] = table["abs"] = decode_neg_abs;
    table["and"] = table["or"] = table["xor"] = table["not"] = table["cnot"] = decode_logic;
    table["shl"] = table["shr"] = decode_shift;
    table["popc"] = table["clz"] = table["brev"] = table["bfind"] = table["bfe"] = table["bfi"] = decode_bits;
    table["bmsk"] = decode_bmsk;
    table["szext"] = decode_szext;
    table["prmt"] = decode_prmt;
    table["lop3"] = decode_lop3;
    table["shf"] = decode_shf;
    table["sad"] = decode_sad;
    table["dp4a"] = decode_dp4a;
}

}  // namespace deep_gemm::simulator
