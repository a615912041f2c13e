// What a TMA tensor map says, before the driver (or the simulator) encodes it into its opaque 128 bytes.
#pragma once

#include <deep_gemm/format.cuh>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace deep_gemm {

enum class TensorMapSwizzle : int16_t { none, bytes_32, bytes_64, bytes_128 };
/// What the L2 fetches at least where it misses.
enum class TensorMapL2Promotion : int16_t { none, bytes_64, bytes_128, bytes_256 };

/// Same meaning as the arguments of cuTensorMapEncodeTiled: dimension 0 is the contiguous one, `strides_bytes[i]` is
/// the distance between neighbours in dimension i + 1. Out-of-range elements read as zero and are not written.
struct TensorMapSpec {
    void* address = nullptr;
    TensorMapType type = TensorMapType::u8;
    int32_t rank = 2;
    uint64_t sizes[5] = {1, 1, 1, 1, 1};
    uint64_t strides_bytes[4] = {0, 0, 0, 0};
    uint32_t box[5] = {1, 1, 1, 1, 1};
    TensorMapSwizzle swizzle = TensorMapSwizzle::none;
    TensorMapL2Promotion l2_promotion = TensorMapL2Promotion::bytes_256;

    bool operator==(const TensorMapSpec& other) const { return std::memcmp(this, &other, sizeof(other)) == 0; }
};
static_assert(std::has_unique_object_representations_v<TensorMapSpec>);

/// The encoded form that kernels take as a __grid_constant__ field; layout and alignment of CUtensorMap.
struct alignas(64) EncodedTensorMap {
    uint64_t words[16];
};

inline const char* name(TensorMapSwizzle swizzle) {
    constexpr const char* kNames[] = {"none", "32B", "64B", "128B"};
    return kNames[static_cast<int>(swizzle)];
}

inline const char* name(TensorMapType type) {
    constexpr const char* kNames[] = {"u8", "bf16", "f16", "f32", "i32", "u4", "u4_spread", "u6_spread"};
    return kNames[static_cast<int>(type)];
}

/// Bits of an element in global memory.
inline uint32_t memory_bits(TensorMapType type) {
    constexpr uint32_t kBits[] = {8, 16, 16, 32, 32, 4, 4, 6};
    return kBits[static_cast<int>(type)];
}

inline bool unpacks_to_bytes(TensorMapType type) {
    return type == TensorMapType::u4_spread || type == TensorMapType::u6_spread;
}

/// Bits that an element takes in shared memory, gaps included.
inline uint32_t shared_bits(TensorMapType type) { return unpacks_to_bytes(type) ? 8 : memory_bits(type); }

}  // namespace deep_gemm
