// Elements of C and D as the device holds them in memory, and as registers hold them: FP32 and s32.
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm {

template <Element>
struct Storage;
template <>
struct Storage<Element::fp32> {
    using Type = float;
};
template <>
struct Storage<Element::bf16> {
    using Type = uint16_t;
};

template <>
struct Storage<Element::s32> {
    using Type = int32_t;
};

DG_DEVICE int32_t to_register(int32_t value) { return value; }
DG_DEVICE float to_register(float value) { return value; }
DG_DEVICE float to_register(uint16_t bf16) { return __uint_as_float(static_cast<uint32_t>(bf16) << 16); }
DG_DEVICE void from_register(int32_t& target, int32_t value) { target = value; }
DG_DEVICE void from_register(float& target, float value) { target = value; }
DG_DEVICE void from_register(uint16_t& bf16, float value) { bf16 = static_cast<uint16_t>(ptx::pack_bf16(value, 0.0f)); }

/// Two neighbours of D or C as one access.
DG_DEVICE int2 load_pair(const int32_t* pair) { return *reinterpret_cast<const int2*>(pair); }
DG_DEVICE float2 load_pair(const float* pair) { return *reinterpret_cast<const float2*>(pair); }
DG_DEVICE float2 load_pair(const uint16_t* pair) {
    const uint32_t both = *reinterpret_cast<const uint32_t*>(pair);
    return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
}
DG_DEVICE void store_pair(int32_t* pair, int32_t x, int32_t y) { *reinterpret_cast<int2*>(pair) = make_int2(x, y); }
DG_DEVICE void store_pair(float* pair, float x, float y) { *reinterpret_cast<float2*>(pair) = make_float2(x, y); }
DG_DEVICE void store_pair(uint16_t* pair, float x, float y) {
    *reinterpret_cast<uint32_t*>(pair) = ptx::pack_bf16(x, y);
}

}  // namespace deep_gemm
