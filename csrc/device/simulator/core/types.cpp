// Names and sizes of PTX types; conversion of the small float formats, written out by their definition.
#include "types.hpp"

#include <array>
#include <cmath>
#include <unordered_map>

namespace deep_gemm::simulator {

Type parse_type(std::string_view modifier) {
    static const std::unordered_map<std::string_view, Type> kTypes = {
        {"pred", Type::pred},     {"b8", Type::b8},         {"b16", Type::b16},         {"b32", Type::b32},
        {"b64", Type::b64},       {"b128", Type::b128},     {"u8", Type::u8},           {"u16", Type::u16},
        {"u32", Type::u32},       {"u64", Type::u64},       {"s8", Type::s8},           {"s16", Type::s16},
        {"s32", Type::s32},       {"s64", Type::s64},       {"f16", Type::f16},         {"bf16", Type::bf16},
        {"f32", Type::f32},       {"f64", Type::f64},       {"tf32", Type::tf32},       {"f16x2", Type::f16x2},
        {"bf16x2", Type::bf16x2}, {"f32x2", Type::f32x2},   {"u16x2", Type::u16x2},     {"s16x2", Type::s16x2},
        {"e4m3x2", Type::e4m3x2}, {"e5m2x2", Type::e5m2x2}, {"ue8m0x2", Type::ue8m0x2}, {"e2m1x2", Type::e2m1x2},
        {"e2m3x2", Type::e2m3x2}, {"e3m2x2", Type::e3m2x2}, {"e4m3", Type::e4m3},       {"e5m2", Type::e5m2},
        {"s4", Type::s4},         {"u4", Type::u4},         {"e2m1", Type::e2m1},       {"e2m3", Type::e2m3},
        {"e3m2", Type::e3m2}};
    const auto found = kTypes.find(modifier);
    return found == kTypes.end() ? Type::none : found->second;
}

unsigned type_bytes(Type type) {
    switch (type) {
        case Type::b8:
        case Type::u8:
        case Type::s8:
        case Type::e4m3:
        case Type::e5m2:
        case Type::e2m1x2:
            return 1;
        case Type::b16:
        case Type::u16:
        case Type::s16:
        case Type::f16:
        case Type::bf16:
        case Type::e4m3x2:
        case Type::e5m2x2:
        case Type::ue8m0x2:
        case Type::e2m3x2:
        case Type::e3m2x2:
            return 2;
        case Type::b64:
        case Type::u64:
        case Type::s64:
        case Type::f64:
        case Type::f32x2:
            return 8;
        case Type::b128:
            return 16;
        default:
            return 4;
    }
}

unsigned type_bits(Type type) {
    switch (type) {
        case Type::s4:
        case Type::u4:
        case Type::e2m1:
            return 4;
        case Type::e2m3:
        case Type::e3m2:
            return 6;
        default:
            return type == Type::tf32 ? 32 : 8 * type_bytes(type);
    }
}

namespace {

// Round a finite |value| to `mantissa` bits with the given smallest normal exponent. Result is exact in double.
double round_to_format(double value, int mantissa, int min_exponent, Rounding rounding) {
    if (value == 0 || !std::isfinite(value)) return value;
    const int exponent = std::max(std::ilogb(value), min_exponent);
    const double unit = std::ldexp(1.0, exponent - mantissa);
    const double scaled = value / unit;
    double rounded;
    switch (rounding) {
        case Rounding::zero:
            rounded = std::trunc(scaled);
            break;
        case Rounding::down:
            rounded = std::floor(scaled);
            break;
        case Rounding::up:
            rounded = std::ceil(scaled);
            break;
        case Rounding::away:
            rounded = std::round(scaled);
            break;
        default:
            rounded = std::nearbyint(scaled);
            break;
    }
    return rounded * unit;
}

// Bits of a magnitude that round_to_format has made representable.
uint32_t pack_magnitude(double magnitude, int mantissa, int min_exponent, int bias) {
    if (magnitude == 0) return 0;
    const int exponent = std::ilogb(magnitude);
    if (exponent < min_exponent) return uint32_t(std::ldexp(magnitude, mantissa - min_exponent));
    const uint32_t fraction = uint32_t(std::ldexp(magnitude, mantissa - exponent)) - (1u << mantissa);
    return uint32_t(exponent + bias) << mantissa | fraction;
}

}  // namespace

float half_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, fraction = bits & 0x3ff;
    if (exponent == 0) {
        const float magnitude = float(fraction) * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    if (exponent == 31) return __builtin_bit_cast(float, sign | 0x7f800000u | fraction << 13);
    return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t float_to_half(float value, Rounding rounding, bool saturate) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return 0x7fff;
    const double rounded = round_to_format(value, 10, -14, rounding);
    if (std::fabs(rounded) > 65504.0) {
        const bool toward_zero =
            rounding == Rounding::zero || (rounding == Rounding::down && !sign) || (rounding == Rounding::up && sign);
        return sign | (saturate || (toward_zero && std::isfinite(value)) ? 0x7bff : 0x7c00);
    }
    return sign | uint16_t(pack_magnitude(std::fabs(rounded), 10, -14, 15));
}

uint16_t float_to_bf16(float value, Rounding rounding, bool saturate) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    if (std::isnan(value)) return 0x7fff;
    uint32_t result = bits >> 16;
    const uint32_t rest = bits & 0xffff;
    switch (rounding) {
        case Rounding::zero:
            break;
        case Rounding::down:
            result += rest != 0 && (bits >> 31);
            break;
        case Rounding::up:
            result += rest != 0 && !(bits >> 31);
            break;
        case Rounding::away:
            result += rest >= 0x8000;
            break;
        default:
            result = (bits + 0x7fff + (result & 1)) >> 16;
            break;
    }
    if (saturate && (result & 0x7fff) == 0x7f80) result -= 1;
    return uint16_t(result);
}

float e4m3_to_float(uint8_t bits) {
    const int exponent = (bits >> 3) & 15, fraction = bits & 7;
    if ((bits & 0x7f) == 0x7f) return __builtin_nanf("");
    const float magnitude =
        exponent == 0 ? std::ldexp(float(fraction), -9) : std::ldexp(float(8 + fraction), exponent - 10);
    return bits & 0x80 ? -magnitude : magnitude;
}

namespace {

float small_to_float(uint8_t bits, int exponent_bits, int mantissa_bits, int bias) {
    const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1),
              fraction = bits & ((1 << mantissa_bits) - 1);
    const float magnitude = exponent == 0
                                ? std::ldexp(float(fraction), 1 - bias - mantissa_bits)
                                : std::ldexp(float((1 << mantissa_bits) + fraction), exponent - bias - mantissa_bits);
    return bits >> (exponent_bits + mantissa_bits) & 1 ? -magnitude : magnitude;
}

}  // namespace

float e2m1_to_float(uint8_t bits) { return small_to_float(bits, 2, 1, 1); }
float e2m3_to_float(uint8_t bits) { return small_to_float(bits, 2, 3, 1); }
float e3m2_to_float(uint8_t bits) { return small_to_float(bits, 3, 2, 3); }
float e8m0_to_float(uint8_t bits) { return bits == 0xff ? __builtin_nanf("") : std::ldexp(1.0f, int(bits) - 127); }

float e5m2_to_float(uint8_t bits) { return half_to_float(uint16_t(bits << 8)); }

uint8_t float_to_e4m3(float value) {
    const uint8_t sign = std::signbit(value) ? 0x80 : 0;
    if (std::isnan(value)) return 0x7f;
    const double rounded = round_to_format(std::fmin(std::fabs(double(value)), 448.0), 3, -6, Rounding::nearest);
    return sign | uint8_t(pack_magnitude(rounded, 3, -6, 7));
}

uint8_t float_to_e5m2(float value) {
    const uint8_t sign = std::signbit(value) ? 0x80 : 0;
    if (std::isnan(value)) return 0x7f;
    const double rounded = round_to_format(std::fmin(std::fabs(double(value)), 57344.0), 2, -14, Rounding::nearest);
    return sign | uint8_t(pack_magnitude(rounded, 2, -14, 15));
}

namespace {

uint8_t float_to_small(float value, int exponent_bits, int mantissa_bits, int bias, double largest) {
    const int sign = std::signbit(value) && !std::isnan(value) ? 1 << (exponent_bits + mantissa_bits) : 0;
    const double magnitude = std::isnan(value) ? largest : std::fmin(std::fabs(double(value)), largest);
    const double rounded = round_to_format(magnitude, mantissa_bits, 1 - bias, Rounding::nearest);
    return uint8_t(sign | pack_magnitude(rounded, mantissa_bits, 1 - bias, bias));
}

}  // namespace

uint8_t float_to_e2m1(float value) { return float_to_small(value, 2, 1, 1, 6); }
uint8_t float_to_e2m3(float value) { return float_to_small(value, 2, 3, 1, 7.5); }
uint8_t float_to_e3m2(float value) { return float_to_small(value, 3, 2, 3, 28); }

uint32_t float_to_tf32(float value, Rounding rounding) {
    if (std::isnan(value)) return 0x7fffffff;
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    if (std::isinf(value)) return bits;
    switch (rounding) {
        case Rounding::zero:
            return bits & ~0x1fffu;
        case Rounding::away:
            return (bits + 0x1000) & ~0x1fffu;
        default:
            return (bits + 0xfff + ((bits >> 13) & 1)) & ~0x1fffu;
    }
}

const float* e4m3_table() {
    static const auto table = [] {
        std::array<float, 256> values;
        for (int i = 0; i < 256; ++i) values[i] = e4m3_to_float(uint8_t(i));
        return values;
    }();
    return table.data();
}

const float* e5m2_table() {
    static const auto table = [] {
        std::array<float, 256> values;
        for (int i = 0; i < 256; ++i) values[i] = e5m2_to_float(uint8_t(i));
        return values;
    }();
    return table.data();
}

}  // namespace deep_gemm::simulator
