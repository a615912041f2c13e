#include "tensor_map.hpp"

#include "../util/require.hpp"
#include "device.hpp"

namespace deep_gemm {

void check_tensor_map(const TensorMapSpec& spec) {
    constexpr uint64_t kMaxSize = uint64_t{1} << 32;
    constexpr uint64_t kMaxStrideBytes = uint64_t{1} << 40;
    constexpr uint32_t kMaxBox = 256;
    constexpr uint64_t kAlignment = 16;
    const uint32_t bytes = element_bytes(spec.type);
    require(spec.rank >= 1 && spec.rank <= 5, "a tensor map has 1 to 5 dimensions, not ", spec.rank);
    require(spec.address != nullptr, "a tensor map needs an address, but the tensor has none (is it empty?)");
    require(reinterpret_cast<uintptr_t>(spec.address) % kAlignment == 0,
            "a tensor read by TMA must start at a multiple of 16 bytes, but this one starts at ", spec.address);
    for (int i = 0; i < spec.rank; ++i) {
        require(spec.sizes[i] >= 1 && spec.sizes[i] <= kMaxSize, "dimension ", i,
                " of a tensor map must have 1 to 2^32 elements, not ", spec.sizes[i]);
        require(spec.box[i] >= 1 && spec.box[i] <= kMaxBox, "dimension ", i,
                " of a tensor map's box must have 1 to 256 elements, not ", spec.box[i]);
    }
    for (int i = 0; i + 1 < spec.rank; ++i)
        require(spec.strides_bytes[i] % kAlignment == 0 && spec.strides_bytes[i] < kMaxStrideBytes,
                "neighbours in dimension ", i + 1,
                " of a tensor read by TMA must lie a multiple of 16 bytes (below 2^40) "
                "apart, not ",
                spec.strides_bytes[i], " bytes");
    const uint32_t row_bytes = spec.box[0] * bytes;
    require(row_bytes % kAlignment == 0, "a row of a tensor map's box must be a multiple of 16 bytes, not ", row_bytes,
            " (", spec.box[0], " of ", name(spec.type), ")");
    constexpr uint32_t kSpanBytes[] = {UINT32_MAX, 32, 64, 128};
    require(row_bytes <= kSpanBytes[static_cast<int>(spec.swizzle)], "a row of a tensor map's box has ", row_bytes,
            " bytes, more than its swizzle of ", name(spec.swizzle), " spans");
}

}  // namespace deep_gemm
