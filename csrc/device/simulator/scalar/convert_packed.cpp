// cvt of two values in a register: halves, FP8, FP6, FP4, exponents.
#include <cmath>

#include "convert.hpp"

namespace deep_gemm::simulator {

namespace {

// Two f32 into one register of two halves; the first source goes to the upper half.
template <uint16_t (*kConvert)(float, Rounding, bool), uint32_t kNan>
Step cvt_pair(Warp& w, const Instruction& in, uint32_t lanes) {
    const Conversion c = unpack(in);
    const auto *a = w.row<float>(in.a), *b = w.row<float>(in.b);
    auto* d = w.row<uint32_t>(in.d);
    const auto one = [&](float v) {
        if (c.relu && !std::isnan(v)) v = std::fmax(v, 0.0f);
        return uint32_t(kConvert(v, c.rounding, c.saturate));
    };
    for_lanes(lanes, [&](unsigned i) { d[i] = one(a[i]) << 16 | one(b[i]); });
    return Step::next;
}

template <uint8_t (*kConvert)(float), bool kFromHalves>
Step cvt_fp8_pair(Warp& w, const Instruction& in, uint32_t lanes) {
    const Conversion c = unpack(in);
    auto* d = w.row<uint32_t>(in.d);
    for_lanes(lanes, [&](unsigned i) {
        float high, low;
        if (kFromHalves) {
            const uint32_t bits = w.row<uint32_t>(in.a)[i];
            high = c.from == Type::bf16x2 ? bf16_to_float(uint16_t(bits >> 16)) : half_to_float(uint16_t(bits >> 16));
            low = c.from == Type::bf16x2 ? bf16_to_float(uint16_t(bits)) : half_to_float(uint16_t(bits));
        } else {
            high = w.row<float>(in.a)[i];
            low = w.row<float>(in.b)[i];
        }
        if (c.relu)
            high = std::isnan(high) ? high : std::fmax(high, 0.0f), low = std::isnan(low) ? low : std::fmax(low, 0.0f);
        d[i] = uint32_t(kConvert(high)) << 8 | kConvert(low);
    });
    return Step::next;
}

// Elements of 4 and 6 bits: two of 4 share a byte, of 6 each has its own.
template <uint8_t (*kConvert)(float), unsigned kShift>
Step cvt_small_pair(Warp& w, const Instruction& in, uint32_t lanes) {
    const bool relu = unpack(in).relu;
    const auto one = [&](float v) { return uint32_t(kConvert(relu && v < 0 ? 0.0f : v)); };
    for_lanes(lanes, [&](unsigned i) {
        w.row<uint32_t>(in.d)[i] = one(w.row<float>(in.a)[i]) << kShift | one(w.row<float>(in.b)[i]);
    });
    return Step::next;
}

// Of a pair of so many bits each; where they share a byte, it is half of one.
template <float (*kConvert)(uint8_t), unsigned kBits>
Step cvt_pair_to_half(Warp& w, const Instruction& in, uint32_t lanes) {
    constexpr uint32_t kShift = kBits == 4 ? 4 : 8, kMask = (1u << kBits) - 1;
    const bool relu = unpack(in).relu;
    const auto one = [&](uint32_t code) {
        const float v = kConvert(uint8_t(code & kMask));
        return uint32_t(float_to_half(relu && v < 0 ? 0.0f : v));
    };
    for_lanes(lanes, [&](unsigned i) {
        const uint32_t a = w.row<uint32_t>(in.a)[i];
        w.row<uint32_t>(in.d)[i] = one(a >> kShift) << 16 | one(a);
    });
    return Step::next;
}

struct SmallPair {
    Type type;
    Handler to, from;
};
constexpr SmallPair kSmallPairs[] = {
    {Type::e2m1x2, cvt_small_pair<float_to_e2m1, 4>, cvt_pair_to_half<e2m1_to_float, 4>},
    {Type::e2m3x2, cvt_small_pair<float_to_e2m3, 8>, cvt_pair_to_half<e2m3_to_float, 6>},
    {Type::e3m2x2, cvt_small_pair<float_to_e3m2, 8>, cvt_pair_to_half<e3m2_to_float, 6>},
};

// ue8m0: an exponent byte. Rounds up or toward zero as asked.
uint8_t float_to_exponent(float value, Rounding rounding) {
    if (std::isnan(value)) return 0xff;
    const uint32_t bits = __builtin_bit_cast(uint32_t, std::fabs(value));
    uint32_t exponent = bits >> 23;
    if (rounding == Rounding::up && (bits & 0x7fffff)) exponent += 1;
    return uint8_t(std::min(exponent, 254u));
}
Step cvt_exponent_pair(Warp& w, const Instruction& in, uint32_t lanes) {
    const Conversion c = unpack(in);
    for_lanes(lanes, [&](unsigned i) {
        w.row<uint32_t>(in.d)[i] = uint32_t(float_to_exponent(w.row<float>(in.a)[i], c.rounding)) << 8 |
                                   float_to_exponent(w.row<float>(in.b)[i], c.rounding);
    });
    return Step::next;
}
Step cvt_exponent_to_bf16(Warp& w, const Instruction& in, uint32_t lanes) {
    for_lanes(lanes, [&](unsigned i) {
        const uint32_t a = w.row<uint32_t>(in.a)[i];
        w.row<uint32_t>(in.d)[i] =
            uint32_t(float_to_bf16(e8m0_to_float(uint8_t(a >> 8)))) << 16 | float_to_bf16(e8m0_to_float(uint8_t(a)));
    });
    return Step::next;
}

}  // namespace

bool decode_packed_cvt(Decoder& decoder, const Conversion& c) {
    Instruction& out = decoder.out;
    const auto set = [&](Handler handler) {
        decoder.set(handler);
        return true;
    };
    if (c.to == Type::bf16x2 && c.from == Type::ue8m0x2) {
        out.d = decoder.dest(0, Type::b32);
        out.a = decoder.source(1, Type::b16);
        return set(cvt_exponent_to_bf16);
    }
    if (c.to == Type::f16x2 && (c.from == Type::e4m3x2 || c.from == Type::e5m2x2)) {
        out.d = decoder.dest(0, Type::b32);
        out.a = decoder.source(1, Type::b16);
        return set(c.from == Type::e4m3x2 ? cvt_pair_to_half<e4m3_to_float, 8> : cvt_pair_to_half<e5m2_to_float, 8>);
    }
    for (const SmallPair& small : kSmallPairs) {
        if (c.to == Type::f16x2 && c.from == small.type) {
            out.d = decoder.dest(0, Type::b32);
            out.a = decoder.source(1, small.type);
            return set(small.from);
        }
        if (c.from == small.type) decoder.error("this packed conversion is not supported");
        if (c.to != small.type) continue;
        if (c.from != Type::f32 || !c.saturate) decoder.error("this packed conversion is not supported");
        out.d = decoder.dest(0, small.type);
        out.a = decoder.source(1, Type::f32);
        out.b = decoder.source(2, Type::f32);
        return set(small.to);
    }
    if (c.to == Type::f16x2 || c.to == Type::bf16x2) {
        if (c.from != Type::f32) decoder.error("this packed conversion is not supported");
        out.d = decoder.dest(0, Type::b32);
        out.a = decoder.source(1, Type::f32);
        out.b = decoder.source(2, Type::f32);
        return set(c.to == Type::f16x2 ? cvt_pair<float_to_half, 0x7fff> : cvt_pair<float_to_bf16, 0x7fff>);
    }
    if (c.to == Type::e4m3x2 || c.to == Type::e5m2x2 || c.to == Type::ue8m0x2) {
        out.d = decoder.dest(0, Type::b16);
        const bool from_halves = c.from == Type::f16x2 || c.from == Type::bf16x2;
        out.a = decoder.source(1, from_halves ? Type::b32 : Type::f32);
        if (!from_halves) out.b = decoder.source(2, Type::f32);
        if (c.to == Type::ue8m0x2) {
            if (from_halves) decoder.error("this packed conversion is not supported");
            return set(cvt_exponent_pair);
        }
        if (c.to == Type::e4m3x2)
            return set(from_halves ? cvt_fp8_pair<float_to_e4m3, true> : cvt_fp8_pair<float_to_e4m3, false>);
        return set(from_halves ? cvt_fp8_pair<float_to_e5m2, true> : cvt_fp8_pair<float_to_e5m2, false>);
    }
    if (c.from == Type::e4m3x2 || c.from == Type::e5m2x2 || c.from == Type::f16x2 || c.from == Type::bf16x2)
        decoder.error("this packed conversion is not supported");
    return false;
}

}  // namespace deep_gemm::simulator
