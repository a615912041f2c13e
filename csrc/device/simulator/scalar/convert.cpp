// cvt: between every pair of scalar types.
#include <cmath>

#include "convert.hpp"

namespace deep_gemm::simulator {

namespace {

// A register holds the value in its low bits; sign or zero extension is by the source type.
double real_value(Type type, uint64_t bits) {
    switch (type) {
        case Type::f16:
            return half_to_float(uint16_t(bits));
        case Type::bf16:
            return bf16_to_float(uint16_t(bits));
        case Type::f32:
            return __builtin_bit_cast(float, uint32_t(bits));
        case Type::f64:
            return __builtin_bit_cast(double, bits);
        default:
            return 0;
    }
}

int64_t signed_value(Type type, uint64_t bits) {
    switch (type) {
        case Type::s8:
            return int8_t(bits);
        case Type::s16:
            return int16_t(bits);
        case Type::s32:
            return int32_t(bits);
        case Type::u8:
        case Type::b8:
            return uint8_t(bits);
        case Type::u16:
        case Type::b16:
            return uint16_t(bits);
        case Type::u32:
        case Type::b32:
            return uint32_t(bits);
        default:
            return int64_t(bits);
    }
}

double round_integral(double value, Rounding rounding) {
    switch (rounding) {
        case Rounding::zero:
            return std::trunc(value);
        case Rounding::down:
            return std::floor(value);
        case Rounding::up:
            return std::ceil(value);
        default:
            return std::nearbyint(value);
    }
}

void integer_limits(Type type, double& low, double& high, int64_t& low_bits, uint64_t& high_bits) {
    const unsigned bits = type_bytes(type) * 8;
    if (is_signed(type)) {
        low = -std::ldexp(1.0, int(bits) - 1);
        high = std::ldexp(1.0, int(bits) - 1);
        low_bits = bits == 64 ? INT64_MIN : -(int64_t(1) << (bits - 1));
        high_bits = (uint64_t(1) << (bits - 1)) - 1;
    } else {
        low = 0;
        high = std::ldexp(1.0, int(bits));
        low_bits = 0;
        high_bits = bits == 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1;
    }
}

float to_float(double value, Rounding rounding) {
    float result = float(value);
    if (rounding == Rounding::nearest || double(result) == value || std::isnan(value)) return result;
    const bool too_high = double(result) > value;
    if ((rounding == Rounding::zero && (value > 0 ? too_high : !too_high)) ||
        (rounding == Rounding::down && too_high) || (rounding == Rounding::up && !too_high))
        result = std::nextafterf(result, too_high ? -INFINITY : INFINITY);
    return result;
}

uint64_t store_real(const Conversion& c, double value) {
    if (c.flush && c.to == Type::f32 && std::fpclassify(float(value)) == FP_SUBNORMAL)
        value = std::copysign(0.0, value);
    if (c.relu && !std::isnan(value)) value = std::fmax(value, 0.0);
    switch (c.to) {
        case Type::f64:
            return __builtin_bit_cast(uint64_t, value);
        case Type::f32: {
            float result = to_float(value, c.rounding);
            if (c.saturate) result = std::isnan(result) ? 0.0f : std::fmin(std::fmax(result, 0.0f), 1.0f);
            return std::isnan(result) ? 0x7fffffffu : __builtin_bit_cast(uint32_t, result);
        }
        case Type::f16:
            return float_to_half(float(value), c.rounding, c.saturate);
        case Type::bf16:
            return float_to_bf16(float(value), c.rounding, c.saturate);
        case Type::tf32:
            return float_to_tf32(float(value), c.rounding);
        default:
            return 0;
    }
}

uint64_t convert_one(const Conversion& c, uint64_t bits) {
    if (is_float(c.from)) {
        double value = real_value(c.from, bits);
        if (c.flush && c.from == Type::f32 && std::fpclassify(float(value)) == FP_SUBNORMAL)
            value = std::copysign(0.0, value);
        if (is_float(c.to)) {
            if (c.integer_rounding) value = round_integral(value, c.rounding);
            return store_real(c, value);
        }
        if (std::isnan(value))
            return type_bytes(c.to) == 8 && c.from != Type::f64 ? uint64_t(1) << 63
                   : type_bytes(c.to) == 8                      ? uint64_t(1) << 63
                                                                : 0;
        double low, high;
        int64_t low_bits;
        uint64_t high_bits;
        integer_limits(c.to, low, high, low_bits, high_bits);
        const double whole = round_integral(value, c.rounding);
        if (whole <= low) return uint64_t(low_bits);
        if (whole >= high) return high_bits;
        return is_signed(c.to) ? uint64_t(int64_t(whole)) : uint64_t(whole);
    }
    const int64_t value = signed_value(c.from, bits);
    const bool from_signed = is_signed(c.from);
    if (is_float(c.to)) {
        if (c.to == Type::f32) {  // straight from the integer: one rounding
            if (c.rounding == Rounding::nearest) {
                const float result = from_signed || value >= 0 ? float(value) : float(uint64_t(value));
                return __builtin_bit_cast(uint32_t, result);
            }
            const long double exact = from_signed || value >= 0 ? (long double)value : (long double)uint64_t(value);
            float result = float(exact);
            const bool too_high = (long double)result > exact, too_low = (long double)result < exact;
            if ((c.rounding == Rounding::down && too_high) || (c.rounding == Rounding::zero && too_high && exact > 0))
                result = std::nextafterf(result, -INFINITY);
            if ((c.rounding == Rounding::up && too_low) || (c.rounding == Rounding::zero && too_low && exact < 0))
                result = std::nextafterf(result, INFINITY);
            return __builtin_bit_cast(uint32_t, result);
        }
        return store_real(c, from_signed || value >= 0 ? double(value) : double(uint64_t(value)));
    }
    if (c.saturate) {
        double low, high;
        int64_t low_bits;
        uint64_t high_bits;
        integer_limits(c.to, low, high, low_bits, high_bits);
        if (from_signed || value >= 0) {
            if (value < low_bits) return uint64_t(low_bits);
            if (value >= 0 && uint64_t(value) > high_bits) return high_bits;
        } else {
            return high_bits;  // a 64-bit unsigned beyond every signed value
        }
    }
    return uint64_t(value);
}

uint64_t narrow(Type type, uint64_t bits, unsigned register_bytes) {
    const unsigned bytes = type_bytes(type);
    if (bytes >= register_bytes) return bits;
    // A wider destination register is sign- or zero-extended by the destination type.
    switch (type) {
        case Type::s8:
            return uint64_t(int64_t(int8_t(bits)));
        case Type::s16:
            return register_bytes == 4 ? uint32_t(int16_t(bits)) : uint64_t(int64_t(int16_t(bits)));
        case Type::s32:
            return uint64_t(int64_t(int32_t(bits)));
        default:
            return bytes == 8 ? bits : bits & ((uint64_t(1) << (bytes * 8)) - 1);
    }
}

Step cvt_general(Warp& w, const Instruction& in, uint32_t lanes) {
    const Conversion c = unpack(in);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned i = std::countr_zero(left);
        const unsigned held =
            in.d.bytes == 4 && in.displacement ? 2 : in.d.bytes;  // .b16 registers live in 32-bit rows
        uint64_t bits = narrow(c.to, convert_one(c, read_any(w, in.a, i)), in.d.bytes);
        if (held == 2) bits &= 0xffff;
        write_any(w, in.d, i, bits);
    }
    return Step::next;
}

template <class D, class A>
Step cvt_fast(Warp& w, const Instruction& in, uint32_t m) {
    return unary_op<D, A, [](A a) { return D(a); }>(w, in, m);
}

// cvt.pack.sat.u8.s32.b32 d, a, b, c: two values saturated and shifted in above c.
Step cvt_pack(Warp& w, const Instruction& in, uint32_t lanes) {
    const Conversion c = unpack(in);
    const unsigned bits = type_bytes(c.to) * 8;
    for_lanes(lanes, [&](unsigned i) {
        Conversion one = c;
        one.saturate = true;
        const uint64_t mask = (uint64_t(1) << bits) - 1;
        const uint64_t a = convert_one(one, w.row<uint32_t>(in.a)[i]) & mask,
                       b = convert_one(one, w.row<uint32_t>(in.b)[i]) & mask;
        const uint64_t upper = in.c.present ? w.row<uint32_t>(in.c)[i] : 0;
        w.row<uint32_t>(in.d)[i] = uint32_t(bits == 16 ? a << 16 | b : upper << 16 | a << 8 | b);
    });
    return Step::next;
}

void decode_cvt(Decoder& decoder) {
    Conversion c;
    const bool pack = decoder.mod("pack");
    const auto mode = decoder.one_of({"rni", "rzi", "rmi", "rpi", "rna", "rn", "rz", "rm", "rp"});
    c.integer_rounding = mode.size() == 3 && mode != "rna";
    const char letter = mode.empty() ? 'n' : mode == "rna" ? 'a' : mode[1];
    c.rounding = letter == 'z'   ? Rounding::zero
                 : letter == 'm' ? Rounding::down
                 : letter == 'p' ? Rounding::up
                 : letter == 'a' ? Rounding::away
                                 : Rounding::nearest;
    c.saturate = decoder.mod("sat") | decoder.mod("satfinite");
    c.relu = decoder.mod("relu");
    c.flush = decoder.mod("ftz");
    c.to = decoder.need_type();
    c.from = decoder.need_type();
    Instruction& out = decoder.out;
    const auto store = [&] {
        out.flags = uint32_t(c.from) | uint32_t(c.to) << 8 | uint32_t(c.rounding) << 16 |
                    uint32_t(c.integer_rounding) << 20 | uint32_t(c.saturate) << 21 | uint32_t(c.relu) << 22 |
                    uint32_t(c.flush) << 23;
    };
    store();
    if (pack) {
        out.d = decoder.dest(0, Type::b32);
        out.a = decoder.source(1, Type::b32);
        out.b = decoder.source(2, Type::b32);
        if (decoder.count() > 3) {
            decoder.need_type();
            out.c = decoder.source(3, Type::b32);
        }
        return decoder.set(cvt_pack);
    }
    if (decode_packed_cvt(decoder, c)) return;
    out.d = decoder.dest_any(decoder.node(0), std::max(4u, type_bytes(c.to)));
    const Node& source = decoder.node(1);
    out.a = source.kind == Node::Kind::name ? decoder.source_any(source, std::max(4u, type_bytes(c.from)))
                                            : decoder.source(source, c.from);
    if (out.d.bytes < std::max(4u, type_bytes(c.to)) || out.a.bytes < std::max(4u, type_bytes(c.from)))
        decoder.error("a register is narrower than its type");
    out.displacement = type_bytes(c.to) <= 2 && !is_signed(c.to);
    decoder.set(cvt_general);
    // The common ones, vectorised.
    if (!c.saturate && !c.flush && !c.relu && !c.integer_rounding && c.rounding == Rounding::nearest) {
        const bool exact_rows =
            out.d.bytes == std::max(4u, type_bytes(c.to)) && out.a.bytes == std::max(4u, type_bytes(c.from));
        const auto is = [&](Type to, Type from) { return exact_rows && c.to == to && c.from == from; };
        if (is(Type::u64, Type::u32) || is(Type::s64, Type::u32)) decoder.set(cvt_fast<uint64_t, uint32_t>);
        if (is(Type::s64, Type::s32) || is(Type::u64, Type::s32)) decoder.set(cvt_fast<int64_t, int32_t>);
        if (is(Type::u32, Type::u64) || is(Type::s32, Type::u64) || is(Type::s32, Type::s64) ||
            is(Type::u32, Type::s64))
            decoder.set(cvt_fast<uint32_t, uint64_t>);
        if (is(Type::f32, Type::u32)) decoder.set(cvt_fast<float, uint32_t>);
        if (is(Type::f32, Type::s32)) decoder.set(cvt_fast<float, int32_t>);
        if (is(Type::u32, Type::u16) || is(Type::s32, Type::u16)) decoder.set(cvt_fast<uint32_t, uint16_t>);
        if (is(Type::u16, Type::u32) || is(Type::s16, Type::u32) || is(Type::u16, Type::s32))
            decoder.set(cvt_fast<uint16_t, uint32_t>);
    }
}

}  // namespace

void add_convert(DecodeTable& table) { table["cvt"] = decode_cvt; }

}  // namespace deep_gemm::simulator
