// Floating-point arithmetic: f32, f64, f16, bf16 and the packed forms.
#include <cfenv>
#include <cmath>

#include "../core/execute.hpp"

namespace deep_gemm::simulator {

namespace {

// Wrappers that give the 16-bit formats a value: arithmetic is done in FP32 and rounded once.
struct Half {
    uint16_t bits;
    Half() = default;
    explicit Half(float v) : bits(float_to_half(v)) {}
    operator float() const { return half_to_float(bits); }
};
struct Bfloat {
    uint16_t bits;
    Bfloat() = default;
    explicit Bfloat(float v) : bits(float_to_bf16(v)) {}
    operator float() const { return bf16_to_float(bits); }
};

enum : uint32_t { kFlush = 1, kSaturate = 2, kRelu = 4, kNanPropagates = 8, kMagnitude = 16, kSignXor = 32 };
enum class Op { add, sub, mul, fma, div, min, max, neg, abs, rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, copysign };

template <class T>
T flush(T v) {
    return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(T(0), v) : v;
}

template <class T>
T clean_nan(T v) {  // the GPU's own NaN, so that results do not depend on the host's payloads
    if constexpr (sizeof(T) == 4)
        return std::isnan(v) ? __builtin_bit_cast(float, 0x7fffffffu) : v;
    else
        return v;
}

template <class T, Op kOp>
T compute(T a, T b, T c) {
    if constexpr (kOp == Op::add) return a + b;
    if constexpr (kOp == Op::sub) return a - b;
    if constexpr (kOp == Op::mul) return a * b;
    if constexpr (kOp == Op::fma) return std::fma(a, b, c);
    if constexpr (kOp == Op::div) return a / b;
    if constexpr (kOp == Op::min)
        return std::isnan(a) ? b : std::isnan(b) ? a : (a < b || (a == b && std::signbit(a))) ? a : b;
    if constexpr (kOp == Op::max)
        return std::isnan(a) ? b : std::isnan(b) ? a : (a > b || (a == b && !std::signbit(a))) ? a : b;
    if constexpr (kOp == Op::neg) return -a;
    if constexpr (kOp == Op::abs) return std::fabs(a);
    if constexpr (kOp == Op::rcp) return T(1) / a;
    if constexpr (kOp == Op::sqrt) return std::sqrt(a);
    if constexpr (kOp == Op::rsqrt) return T(1 / std::sqrt(double(a)));
    if constexpr (kOp == Op::sin) return T(std::sin(double(a)));
    if constexpr (kOp == Op::cos) return T(std::cos(double(a)));
    if constexpr (kOp == Op::lg2) return T(std::log2(double(a)));
    if constexpr (kOp == Op::ex2) return T(std::exp2(double(a)));
    if constexpr (kOp == Op::tanh) return T(std::tanh(double(a)));
    if constexpr (kOp == Op::copysign) return std::copysign(b, a);
}

constexpr int operand_count(Op op) {
    switch (op) {
        case Op::fma:
            return 3;
        case Op::neg:
        case Op::abs:
        case Op::rcp:
        case Op::sqrt:
        case Op::rsqrt:
        case Op::sin:
        case Op::cos:
        case Op::lg2:
        case Op::ex2:
        case Op::tanh:
            return 1;
        default:
            return 2;
    }
}

// One value with every modifier applied; the slow path.
template <class T, Op kOp>
T modified(T a, T b, T c, uint32_t flags) {
    if (flags & kFlush) a = flush(a), b = flush(b), c = flush(c);
    if ((kOp == Op::min || kOp == Op::max)) {
        if (flags & kMagnitude) a = std::fabs(a), b = std::fabs(b);
        if (flags & kNanPropagates && (std::isnan(a) || std::isnan(b))) return clean_nan(T(NAN));
    }
    T result = compute<T, kOp>(a, b, c);
    if (flags & kSignXor) result = std::copysign(result, std::signbit(a) != std::signbit(b) ? T(-1) : T(1));
    if (flags & kFlush) result = flush(result);
    if (flags & kSaturate) result = std::isnan(result) ? T(0) : std::fmin(std::fmax(result, T(0)), T(1));
    if (flags & kRelu) result = std::isnan(result) ? clean_nan(result) : std::fmax(result, T(0));
    return clean_nan(result);
}

template <class T, Op kOp>
Step plain(Warp& w, const Instruction& in, uint32_t lanes) {
    constexpr int n = operand_count(kOp);
    auto* d = w.row<T>(in.d);
    const auto *a = w.row<T>(in.a), *b = n > 1 ? w.row<T>(in.b) : a, *c = n > 2 ? w.row<T>(in.c) : a;
    for_lanes(lanes, [&](unsigned i) { d[i] = compute<T, kOp>(a[i], b[i], c[i]); });
    return Step::next;
}

template <class T, Op kOp>
Step with_flags(Warp& w, const Instruction& in, uint32_t lanes) {
    constexpr int n = operand_count(kOp);
    auto* d = w.row<T>(in.d);
    const auto *a = w.row<T>(in.a), *b = n > 1 ? w.row<T>(in.b) : a, *c = n > 2 ? w.row<T>(in.c) : a;
    // Directed rounding through the host's rounding mode; the volatile copies keep the arithmetic inside.
    const int mode = int(in.displacement);
    if (mode != FE_TONEAREST) std::fesetround(mode);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned i = std::countr_zero(left);
        volatile T x = a[i], y = b[i], z = c[i];
        volatile T result = modified<T, kOp>(x, y, z, in.flags);
        d[i] = result;
    }
    if (mode != FE_TONEAREST) std::fesetround(FE_TONEAREST);
    return Step::next;
}

template <class T, Op kOp>
uint16_t small(uint16_t a, uint16_t b, uint16_t c, uint32_t flags) {
    const float x = std::bit_cast<T>(a), y = std::bit_cast<T>(b), z = std::bit_cast<T>(c);
    if (kOp == Op::neg) return a ^ 0x8000;
    if (kOp == Op::abs) return a & 0x7fff;
    if (kOp ==
        Op::fma) {  // double holds the exact product, so one rounding to odd-free double and one to the format suffices
        const double exact = double(x) * double(y) + double(z);
        float result = float(exact);
        if (flags & kSaturate) result = std::isnan(result) ? 0.0f : std::fmin(std::fmax(result, 0.0f), 1.0f);
        if (flags & kRelu && !(result > 0.0f) && !std::isnan(result)) result = 0.0f;
        return T(result).bits;
    }
    return T(modified<float, kOp>(x, y, z, flags & ~uint32_t(kFlush))).bits;
}

template <class T, Op kOp, bool kPair>
Step small_op(Warp& w, const Instruction& in, uint32_t lanes) {
    constexpr int n = operand_count(kOp);
    auto* d = w.row<uint32_t>(in.d);
    const auto *a = w.row<uint32_t>(in.a), *b = n > 1 ? w.row<uint32_t>(in.b) : a,
               *c = n > 2 ? w.row<uint32_t>(in.c) : a;
    for_lanes(lanes, [&](unsigned i) {
        uint32_t result = small<T, kOp>(uint16_t(a[i]), uint16_t(b[i]), uint16_t(c[i]), in.flags);
        if (kPair)
            result |=
                uint32_t(small<T, kOp>(uint16_t(a[i] >> 16), uint16_t(b[i] >> 16), uint16_t(c[i] >> 16), in.flags))
                << 16;
        d[i] = result;
    });
    return Step::next;
}

// f32x2: two floats in one 64-bit register.
template <Op kOp>
Step pair_op(Warp& w, const Instruction& in, uint32_t lanes) {
    constexpr int n = operand_count(kOp);
    auto* d = w.row<uint64_t>(in.d);
    const auto *a = w.row<uint64_t>(in.a), *b = n > 1 ? w.row<uint64_t>(in.b) : a,
               *c = n > 2 ? w.row<uint64_t>(in.c) : a;
    const int mode = int(in.displacement);
    if (mode != FE_TONEAREST) std::fesetround(mode);
    for_lanes(lanes, [&](unsigned i) {
        uint64_t result = 0;
        for (int half = 0; half < 2; ++half) {
            const auto part = [&](uint64_t bits) { return __builtin_bit_cast(float, uint32_t(bits >> (32 * half))); };
            const float value = modified<float, kOp>(part(a[i]), part(b[i]), part(c[i]), in.flags);
            result |= uint64_t(__builtin_bit_cast(uint32_t, value)) << (32 * half);
        }
        d[i] = result;
    });
    if (mode != FE_TONEAREST) std::fesetround(FE_TONEAREST);
    return Step::next;
}

/// FP32 sums of 16-bit operands, which become FP32 exactly: all but the last operand are narrow.
template <Op kOp, class Narrow>
Step mixed(Warp& w, const Instruction& in, uint32_t lanes) {
    constexpr bool kProduct = kOp == Op::fma;
    const auto *a = w.row<uint32_t>(in.a), *b = kProduct ? w.row<uint32_t>(in.b) : a;
    const auto* last = w.row<float>(kProduct ? in.c : in.b);
    const int mode = int(in.displacement);
    if (mode != FE_TONEAREST) std::fesetround(mode);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned i = std::countr_zero(left);
        volatile float x = std::bit_cast<Narrow>(uint16_t(a[i])), y = std::bit_cast<Narrow>(uint16_t(b[i])),
                       z = last[i];
        volatile float result =
            kProduct ? modified<float, kOp>(x, y, z, in.flags) : modified<float, kOp>(x, z, z, in.flags);
        w.row<float>(in.d)[i] = result;
    }
    if (mode != FE_TONEAREST) std::fesetround(FE_TONEAREST);
    return Step::next;
}

template <Op kOp>
void decode_mixed(Decoder& decoder, Type narrow) {
    Instruction& out = decoder.out;
    out.d = decoder.dest(0, Type::f32);
    out.a = decoder.source(1, narrow);
    out.b = decoder.source(2, kOp == Op::fma ? narrow : Type::f32);
    if (kOp == Op::fma) out.c = decoder.source(3, Type::f32);
    decoder.set(narrow == Type::f16 ? mixed<kOp, Half> : mixed<kOp, Bfloat>);
}

template <Op kOp>
void choose(Decoder& decoder, Type type) {
    Instruction& out = decoder.out;
    const bool simple = out.flags == 0 && out.displacement == FE_TONEAREST;
    switch (type) {
        case Type::f32:
            decoder.set(simple ? plain<float, kOp> : with_flags<float, kOp>);
            break;
        case Type::f64:
            decoder.set(simple ? plain<double, kOp> : with_flags<double, kOp>);
            break;
        case Type::f16:
            decoder.set(small_op<Half, kOp, false>);
            break;
        case Type::bf16:
            decoder.set(small_op<Bfloat, kOp, false>);
            break;
        case Type::f16x2:
            decoder.set(small_op<Half, kOp, true>);
            break;
        case Type::bf16x2:
            decoder.set(small_op<Bfloat, kOp, true>);
            break;
        case Type::f32x2:
            decoder.set(pair_op<kOp>);
            break;
        default:
            decoder.error("floating-point type expected");
    }
}

int take_rounding(Decoder& decoder) {
    const auto mode = decoder.one_of({"rn", "rz", "rm", "rp", "approx", "full"});
    return mode == "rz" ? FE_TOWARDZERO : mode == "rm" ? FE_DOWNWARD : mode == "rp" ? FE_UPWARD : FE_TONEAREST;
}

void take_flags(Decoder& decoder) {
    uint32_t flags = 0;
    if (decoder.mod("ftz")) flags |= kFlush;
    if (decoder.mod("sat")) flags |= kSaturate;
    if (decoder.mod("relu")) flags |= kRelu;
    if (decoder.mod("NaN")) flags |= kNanPropagates;
    if (decoder.mod("abs")) flags |= kMagnitude;
    if (decoder.mod("xorsign")) flags |= kSignXor;
    decoder.mod("noftz");
    decoder.out.displacement = take_rounding(decoder);
    decoder.out.flags = flags;
}

template <Op kOp>
void decode(Decoder& decoder, Type type) {
    take_flags(decoder);
    if constexpr (kOp == Op::add || kOp == Op::sub || kOp == Op::fma)
        if (type == Type::f32)
            if (const auto narrow = decoder.one_of({"f16", "bf16"}); !narrow.empty())
                return decode_mixed<kOp>(decoder, narrow == "f16" ? Type::f16 : Type::bf16);
    Instruction& out = decoder.out;
    out.d = decoder.dest(0, type);
    out.a = decoder.source(1, type);
    if (operand_count(kOp) > 1) out.b = decoder.source(2, type);
    if (operand_count(kOp) > 2) out.c = decoder.source(3, type);
    choose<kOp>(decoder, type);
}

bool is_float_like(Type type) {
    return is_float(type) || type == Type::f16x2 || type == Type::bf16x2 || type == Type::f32x2;
}

template <Op kOp>
void decode_unary(Decoder& decoder) {
    // The type may stand before or after the modifiers; Decoder::type finds it by name.
    const Type type = decoder.need_type();
    decode<kOp>(decoder, type);
}

void decode_fma(Decoder& decoder) { decode<Op::fma>(decoder, decoder.need_type()); }

void decode_rsqrt_ftz(Decoder& decoder) { decode<Op::rsqrt>(decoder, decoder.need_type()); }

enum class Test { finite, infinite, number, notanumber, normal, subnormal };
template <class T>
Step test_property(Warp& w, const Instruction& in, uint32_t lanes) {
    uint32_t result = 0;
    for_lanes(lanes, [&](unsigned i) {
        const T v = w.row<T>(in.a)[i];
        bool yes = false;
        switch (Test(in.flags)) {
            case Test::finite:
                yes = std::isfinite(v);
                break;
            case Test::infinite:
                yes = std::isinf(v);
                break;
            case Test::number:
                yes = !std::isnan(v);
                break;
            case Test::notanumber:
                yes = std::isnan(v);
                break;
            case Test::normal:
                yes = std::isnormal(v);
                break;
            case Test::subnormal:
                yes = std::fpclassify(v) == FP_SUBNORMAL;
                break;
        }
        result |= uint32_t(yes) << i;
    });
    w.mask(in.d) = (w.mask(in.d) & ~lanes) | result;
    return Step::next;
}

void decode_testp(Decoder& decoder) {
    const auto test = decoder.one_of({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
    const Type type = decoder.need_type();
    decoder.out.flags = uint32_t(test == "finite"       ? Test::finite
                                 : test == "infinite"   ? Test::infinite
                                 : test == "number"     ? Test::number
                                 : test == "notanumber" ? Test::notanumber
                                 : test == "normal"     ? Test::normal
                                                        : Test::subnormal);
    decoder.out.d = decoder.dest(0, Type::pred);
    decoder.out.a = decoder.source(1, type);
    decoder.set(type == Type::f64 ? test_property<double> : test_property<float>);
}

}  // namespace

bool decode_float_arithmetic(Decoder& decoder, Type type) {
    if (!is_float_like(type)) return false;
    const auto name = decoder.mnemonic();
    if (name == "add")
        decode<Op::add>(decoder, type);
    else if (name == "sub")
        decode<Op::sub>(decoder, type);
    else if (name == "mul")
        decode<Op::mul>(decoder, type);
    else if (name == "mad")
        decode<Op::fma>(decoder, type);
    else if (name == "div")
        decode<Op::div>(decoder, type);
    else if (name == "min")
        decode<Op::min>(decoder, type);
    else if (name == "max")
        decode<Op::max>(decoder, type);
    else if (name == "neg")
        decode<Op::neg>(decoder, type);
    else if (name == "abs")
        decode<Op::abs>(decoder, type);
    else
        decoder.error("no such floating-point instruction");
    return true;
}

void add_float(DecodeTable& table) {
    table["fma"] = decode_fma;
    table["rcp"] = decode_unary<Op::rcp>;
    table["sqrt"] = decode_unary<Op::sqrt>;
    table["rsqrt"] = decode_rsqrt_ftz;
    table["sin"] = decode_unary<Op::sin>;
    table["cos"] = decode_unary<Op::cos>;
    table["lg2"] = decode_unary<Op::lg2>;
    table["ex2"] = decode_unary<Op::ex2>;
    table["tanh"] = decode_unary<Op::tanh>;
    table["copysign"] = decode_unary<Op::copysign>;
    table["testp"] = decode_testp;
}

}  // namespace deep_gemm::simulator
