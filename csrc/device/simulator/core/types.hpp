// PTX scalar types and the small float formats.
#pragma once

#include <cstdint>
#include <string_view>

namespace deep_gemm::simulator {

enum class Type : uint8_t {
    none,
    pred,
    b8,
    b16,
    b32,
    b64,
    b128,
    u8,
    u16,
    u32,
    u64,
    s8,
    s16,
    s32,
    s64,
    f16,
    bf16,
    f32,
    f64,
    tf32,
    f16x2,
    bf16x2,
    f32x2,
    u16x2,
    s16x2,
    e4m3x2,
    e5m2x2,
    ue8m0x2,
    e2m1x2,
    e2m3x2,
    e3m2x2,
    e4m3,
    e5m2,
    s4,
    u4,
    e2m1,
    e2m3,
    e3m2
};

Type parse_type(std::string_view modifier);  // Type::none when it is not a type
unsigned type_bytes(Type type);              // not of 4-bit types
unsigned type_bits(Type type);               // of an element of a matrix: 4 to 32
inline bool is_signed(Type t) { return t == Type::s8 || t == Type::s16 || t == Type::s32 || t == Type::s64; }
inline bool is_float(Type t) {
    return t == Type::f16 || t == Type::bf16 || t == Type::f32 || t == Type::f64 || t == Type::tf32 ||
           t == Type::e4m3 || t == Type::e5m2 || t == Type::e2m1 || t == Type::e2m3 || t == Type::e3m2;
}

enum class Rounding : uint8_t { nearest, zero, down, up, away };

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value, Rounding rounding = Rounding::nearest, bool saturate = false);
inline float bf16_to_float(uint16_t bits) { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
uint16_t float_to_bf16(float value, Rounding rounding = Rounding::nearest, bool saturate = false);
float e4m3_to_float(uint8_t bits);
float e5m2_to_float(uint8_t bits);
float e2m1_to_float(uint8_t bits);  // these three have neither infinities nor NaN
float e2m3_to_float(uint8_t bits);
float e3m2_to_float(uint8_t bits);
float e8m0_to_float(uint8_t bits);
uint8_t float_to_e4m3(float value);  // round to nearest even, saturate to the largest finite value
uint8_t float_to_e5m2(float value);
uint8_t float_to_e2m1(float value);  // of these three, NaN becomes the largest value
uint8_t float_to_e2m3(float value);
uint8_t float_to_e3m2(float value);
uint32_t float_to_tf32(float value, Rounding rounding);
const float* e4m3_table();
const float* e5m2_table();

}  // namespace deep_gemm::simulator
