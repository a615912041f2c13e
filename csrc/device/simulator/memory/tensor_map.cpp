// Tensor maps: our encoding. The rules that the driver checks stand in csrc/device/tensor_map.cpp.
#include "tensor_map.hpp"

#include <cstring>

#include "../../device.hpp"
#include "../simulator.hpp"

namespace deep_gemm::simulator {

EncodedTensorMap encode(const TensorMapSpec& spec) {
    check_tensor_map(spec);
    StoredTensorMap stored{};
    stored.magic = kTensorMapMagic;
    stored.address = reinterpret_cast<uint64_t>(spec.address);
    for (int i = 0; i < 5; ++i) {
        stored.sizes[i] = i < spec.rank ? spec.sizes[i] : 1;
        stored.box[i] = uint16_t(i < spec.rank ? spec.box[i] : 1);
        if (i < 4) stored.strides[i] = i + 1 < spec.rank ? spec.strides_bytes[i] : 0;
    }
    stored.type = uint8_t(spec.type);
    stored.rank = uint8_t(spec.rank);
    stored.swizzle = uint8_t(spec.swizzle);
    EncodedTensorMap encoded{};
    std::memcpy(&encoded, &stored, sizeof(stored));
    return encoded;
}

uint64_t covered_bytes(const StoredTensorMap& map) {
    uint64_t last = 0;
    for (int i = 1; i < map.rank; ++i) last += (map.sizes[i] - 1) * map.strides[i - 1];
    return last + (map.sizes[0] * memory_bits(TensorMapType(map.type)) + 7) / 8;
}

}  // namespace deep_gemm::simulator
