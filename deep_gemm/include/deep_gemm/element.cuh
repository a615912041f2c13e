// Elements of C and D as the device holds them in memory, and as registers hold them: FP32 and s32.
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm {

/// Two FP32 values as two neighbours of 16 bits, rounded to nearest, `low` in the low half; and back.
template <Element>
struct Pack;
template <>
struct Pack<Element::bf16> {
    static DG_DEVICE uint32_t pack(float low, float high) { return ptx::pack_bf16(low, high); }
    static DG_DEVICE float2 unpack(uint32_t both) {
        return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
    }
};
template <>
struct Pack<Element::fp16> {
    static DG_DEVICE uint32_t pack(float low, float high) { return ptx::pack_f16(low, high); }
    static DG_DEVICE float2 unpack(uint32_t both) {
        return make_float2(ptx::from_f16(static_cast<uint16_t>(both)),
                           ptx::from_f16(static_cast<uint16_t>(both >> 16)));
    }
};

/// Likewise two bytes, in the low half.
template <>
struct Pack<Element::e4m3> {
    static DG_DEVICE uint32_t pack(float low, float high) { return ptx::pack_e4m3(low, high); }
};

template <>
struct Pack<Element::s8> {
    static DG_DEVICE uint32_t pack(float low, float high) { return ptx::pack_s8(low, high); }
};

/// What holds an element in memory: its bits, where C++ has no such type.
template <Element kElement, int32_t = bits(kElement)>
struct Storage;
template <Element kElement>
struct Storage<kElement, 16> {
    using Type = uint16_t;
};
template <Element kElement>
struct Storage<kElement, 8> {
    using Type = uint8_t;
};
template <>
struct Storage<Element::fp32> {
    using Type = float;
};
template <>
struct Storage<Element::s32> {
    using Type = int32_t;
};
template <Element kElement>
using StorageOf = typename Storage<kElement>::Type;

template <Element kElement>
DG_DEVICE auto to_register(StorageOf<kElement> value) {
    if constexpr (bits(kElement) == 32)
        return value;
    else
        return Pack<kElement>::unpack(value).x;
}
template <Element kElement, typename Register>
DG_DEVICE void from_register(StorageOf<kElement>& target, Register value) {
    if constexpr (bits(kElement) == 32)
        target = value;
    else
        target = static_cast<StorageOf<kElement>>(Pack<kElement>::pack(value, 0.0f));
}

/// Two neighbours of D or C as one access.
template <Element kElement>
DG_DEVICE auto load_pair(const StorageOf<kElement>* pair) {
    if constexpr (kElement == Element::fp32)
        return *reinterpret_cast<const float2*>(pair);
    else if constexpr (kElement == Element::s32)
        return *reinterpret_cast<const int2*>(pair);
    else
        return Pack<kElement>::unpack(*reinterpret_cast<const uint32_t*>(pair));
}
template <Element kElement, typename Register>
DG_DEVICE void store_pair(StorageOf<kElement>* pair, Register x, Register y) {
    if constexpr (kElement == Element::fp32)
        *reinterpret_cast<float2*>(pair) = make_float2(x, y);
    else if constexpr (kElement == Element::s32)
        *reinterpret_cast<int2*>(pair) = make_int2(x, y);
    else if constexpr (bits(kElement) == 8)
        *reinterpret_cast<uint16_t*>(pair) = static_cast<uint16_t>(Pack<kElement>::pack(x, y));
    else
        *reinterpret_cast<uint32_t*>(pair) = Pack<kElement>::pack(x, y);
}

}  // namespace deep_gemm
