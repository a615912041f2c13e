// Tensor maps: the rules that the driver checks, and our encoding.
#include "tensor_map.hpp"

#include <cstring>

#include "../../util/require.hpp"
#include "simulator.hpp"

namespace deep_gemm::simulator {

EncodedTensorMap encode(const TensorMapSpec& spec) {
    const uint32_t element = element_bytes(spec.type);
    require(spec.rank >= 1 && spec.rank <= 5, "tensor map: rank must be 1 to 5, got ", spec.rank);
    require(spec.address != nullptr, "tensor map: the address is null");
    require(reinterpret_cast<uintptr_t>(spec.address) % 16 == 0, "tensor map: the address must be a multiple of 16 bytes, got ", spec.address);
    for (int i = 0; i < spec.rank; ++i) {
        require(spec.sizes[i] >= 1 && spec.sizes[i] <= uint64_t(1) << 32, "tensor map: size of dimension ", i, " must be 1 to 2^32, got ", spec.sizes[i]);
        require(spec.box[i] >= 1 && spec.box[i] <= 256, "tensor map: box of dimension ", i, " must be 1 to 256, got ", spec.box[i]);
    }
    for (int i = 0; i + 1 < spec.rank; ++i) {
        require(spec.strides_bytes[i] % 16 == 0, "tensor map: stride of dimension ", i + 1, " must be a multiple of 16 bytes, got ", spec.strides_bytes[i]);
        require(spec.strides_bytes[i] < uint64_t(1) << 40, "tensor map: stride of dimension ", i + 1, " must be below 2^40 bytes, got ", spec.strides_bytes[i]);
    }
    const uint32_t inner = spec.box[0] * element;
    require(inner % 16 == 0, "tensor map: the innermost box must be a multiple of 16 bytes, got ", spec.box[0], " elements of ", element, " bytes");
    constexpr uint32_t kSpans[] = {0, 32, 64, 128};
    const uint32_t span = kSpans[static_cast<int>(spec.swizzle)];
    require(span == 0 || inner <= span, "tensor map: with ", name(spec.swizzle), " swizzle the innermost box may have ", span, " bytes, got ", inner);

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
    uint64_t last = (map.sizes[0] - 1) * element_bytes(TensorMapType(map.type));
    for (int i = 1; i < map.rank; ++i) last += (map.sizes[i] - 1) * map.strides[i - 1];
    return last + element_bytes(TensorMapType(map.type));
}

}  // namespace deep_gemm::simulator
