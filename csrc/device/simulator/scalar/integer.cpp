// Integer arithmetic and the carry chain.
#include "integer.hpp"

namespace deep_gemm::simulator {

namespace {

using int128 = __int128;
using uint128 = unsigned __int128;

template <class T>
Step add(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(Unsigned<T>(a) + Unsigned<T>(b)); }>(w, in, m);
}
template <class T>
Step sub(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(Unsigned<T>(a) - Unsigned<T>(b)); }>(w, in, m);
}
template <class T>
Step mul_lo(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return T(uint64_t(Unsigned<T>(a)) * uint64_t(Unsigned<T>(b))); }>(w, in,
                                                                                                               m);
}
template <class T>
T high_product(T a, T b) {
    using Wide = std::conditional_t<std::is_signed_v<T>, int128, uint128>;
    return T(Wide(a) * Wide(b) >> (sizeof(T) * 8));
}
template <class T>
Step mul_hi(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return high_product(a, b); }>(w, in, m);
}
template <class T>
struct WidenedOf;
template <>
struct WidenedOf<uint16_t> {
    using type = uint32_t;
};
template <>
struct WidenedOf<int16_t> {
    using type = int32_t;
};
template <>
struct WidenedOf<uint32_t> {
    using type = uint64_t;
};
template <>
struct WidenedOf<int32_t> {
    using type = int64_t;
};
template <class T>
using Widened = typename WidenedOf<T>::type;
template <class T>
Step mul_wide(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<Widened<T>, T, T, [](T a, T b) { return Widened<T>(a) * Widened<T>(b); }>(w, in, m);
}
template <class T>
Step mad_lo(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<T, T, T, T, [](T a, T b, T c) {
        return T(uint64_t(Unsigned<T>(a)) * uint64_t(Unsigned<T>(b)) + uint64_t(Unsigned<T>(c)));
    }>(w, in, m);
}
template <class T>
Step mad_hi(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<T, T, T, T, [](T a, T b, T c) { return T(Unsigned<T>(high_product(a, b)) + Unsigned<T>(c)); }>(w,
                                                                                                                     in,
                                                                                                                     m);
}
template <class T>
Step mad_wide(Warp& w, const Instruction& in, uint32_t m) {
    using W = Widened<T>;
    return ternary_op<W, T, T, W, [](T a, T b, W c) {
        return W(std::make_unsigned_t<W>(W(a) * W(b)) + std::make_unsigned_t<W>(c));
    }>(w, in, m);
}
// Division by zero gives all ones, as the GPU does; the most negative number divided by -1 wraps.
template <class T>
Step divide(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) {
        if (b == 0) return T(~T(0));
        if constexpr (std::is_signed_v<T>)
            if (b == T(-1)) return T(0 - Unsigned<T>(a));
        return T(a / b);
    }>(w, in, m);
}
template <class T>
Step remainder(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) {
        if (b == 0) return a;
        if constexpr (std::is_signed_v<T>)
            if (b == T(-1)) return T(0);
        return T(a % b);
    }>(w, in, m);
}
template <class T>
Step minimum(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return a < b ? a : b; }>(w, in, m);
}
template <class T>
Step maximum(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return (a > b) ? a : b; }>(w, in, m);
}
template <class T>
Step minimum_relu(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return std::max(a < b ? a : b, T(0)); }>(w, in, m);
}
template <class T>
Step maximum_relu(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<T, T, T, [](T a, T b) { return std::max((a > b) ? a : b, T(0)); }>(w, in, m);
}
template <class T>
Step negate(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<T, T, [](T a) { return T(0 - Unsigned<T>(a)); }>(w, in, m);
}
template <class T>
Step absolute(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<T, T, [](T a) { return a < T(0) ? T(0 - Unsigned<T>(a)) : a; }>(w, in, m);
}
template <class T>
Step sad(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<T, T, T, T, [](T a, T b, T c) { return T(c + (a < b ? b - a : a - b)); }>(w, in, m);
}
// The carry flag is one bit a lane.
constexpr uint32_t kCarryOut = 1, kCarryIn = 2, kSubtract = 4, kMultiplyLow = 8, kMultiplyHigh = 16;
template <class T>
Step carry_op(Warp& w, const Instruction& in, uint32_t lanes) {
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

template <class A, class B>
Step dot4(Warp& w, const Instruction& in, uint32_t m) {
    return ternary_op<int32_t, uint32_t, uint32_t, int32_t, [](uint32_t a, uint32_t b, int32_t c) {
        for (int i = 0; i < 4; ++i) c += int32_t(A(a >> (8 * i))) * int32_t(B(b >> (8 * i)));
        return c;
    }>(w, in, m);
}

/// |a - b| of each byte.
template <class T>
Step absolute_differences4(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<uint32_t, uint32_t, uint32_t, [](uint32_t a, uint32_t b) {
        uint32_t result = 0;
        for (int byte = 0; byte < 32; byte += 8)
            result |= static_cast<uint32_t>(std::abs(int{T(a >> byte)} - int{T(b >> byte)})) << byte;
        return result;
    }>(w, in, m);
}

template <class T, int kOp>
Step packed16(Warp& w, const Instruction& in, uint32_t m) {
    return binary_op<uint32_t, uint32_t, uint32_t, [](uint32_t a, uint32_t b) {
        uint32_t result = 0;
        for (int half = 0; half < 2; ++half) {
            const T x = T(a >> (16 * half)), y = T(b >> (16 * half));
            const T r = kOp == 0 ? T(x + y) : kOp == 1 ? std::min(x, y) : std::max(x, y);
            result |= uint32_t(uint16_t(r)) << (16 * half);
        }
        return result;
    }>(w, in, m);
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
            case Type::u16:
                out.d = decoder.dest(0, Type::u32);
                decoder.set(mul_wide<uint16_t>);
                break;
            case Type::s16:
                out.d = decoder.dest(0, Type::s32);
                decoder.set(mul_wide<int16_t>);
                break;
            case Type::u32:
                out.d = decoder.dest(0, Type::u64);
                decoder.set(mul_wide<uint32_t>);
                break;
            case Type::s32:
                out.d = decoder.dest(0, Type::s64);
                decoder.set(mul_wide<int32_t>);
                break;
            default:
                decoder.error("wide multiplication of this type does not exist");
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
        decoder.set(binary_op<int32_t, int32_t, int32_t,
                              [](int32_t a, int32_t b) { return uint32_t(a << 8 >> 8) * uint32_t(b << 8 >> 8); }>);
    else
        decoder.set(binary_op<uint32_t, uint32_t, uint32_t,
                              [](uint32_t a, uint32_t b) { return (a & 0xffffff) * (b & 0xffffff); }>);
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
        const Type wide = type == Type::u16   ? Type::u32
                          : type == Type::s16 ? Type::s32
                          : type == Type::u32 ? Type::u64
                                              : Type::s64;
        out.d = decoder.dest(0, wide);
        out.c = decoder.source(3, wide);
        switch (type) {
            case Type::u16:
                decoder.set(mad_wide<uint16_t>);
                break;
            case Type::s16:
                decoder.set(mad_wide<int16_t>);
                break;
            case Type::u32:
                decoder.set(mad_wide<uint32_t>);
                break;
            case Type::s32:
                decoder.set(mad_wide<int32_t>);
                break;
            default:
                decoder.error("wide multiplication of this type does not exist");
        }
        return;
    }
    out.d = decoder.dest(0, type);
    out.c = decoder.source(3, type);
    if (carry_in || carry_out) {
        out.flags =
            (carry_in ? kCarryIn : 0) | (carry_out ? kCarryOut : 0) | (part == "hi" ? kMultiplyHigh : kMultiplyLow);
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
    decoder.set(a ? (b ? dot4<int8_t, int8_t> : dot4<int8_t, uint8_t>)
                  : (b ? dot4<uint8_t, int8_t> : dot4<uint8_t, uint8_t>));
}

/// Of all four bytes in their order, without saturation; the third operand is then of no use.
void decode_vabsdiff4(Decoder& decoder) {
    const Type type = decoder.need_type(), a = decoder.need_type(), b = decoder.need_type();
    if (type != Type::u32 || a != b || (a != Type::u32 && a != Type::s32))
        decoder.error("vabsdiff4 is modelled from two words of one type to .u32 only");
    binary_operands(decoder, Type::b32);
    decoder.source(3, Type::b32);
    decoder.set(a == Type::s32 ? absolute_differences4<int8_t> : absolute_differences4<uint8_t>);
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
    table["sad"] = decode_sad;
    table["dp4a"] = decode_dp4a;
    table["vabsdiff4"] = decode_vabsdiff4;
}

}  // namespace deep_gemm::simulator
