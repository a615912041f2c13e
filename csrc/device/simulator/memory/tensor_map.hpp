// The simulator's own form of a tensor map in its 128 opaque bytes.
#pragma once

#include "../../tensor_map.hpp"

namespace deep_gemm::simulator {

constexpr uint64_t kTensorMapMagic = 0x70616d2d6d697364;  // "dsim-map"

struct StoredTensorMap {
    uint64_t magic;
    uint64_t address;
    uint64_t sizes[5];
    uint64_t strides[4];
    uint16_t box[5];
    uint8_t type, rank, swizzle, padding;
    uint16_t unused;
};
static_assert(sizeof(StoredTensorMap) <= sizeof(EncodedTensorMap));

/// Bytes from the address to the end of the last element.
uint64_t covered_bytes(const StoredTensorMap& map);

}  // namespace deep_gemm::simulator
