#include "tensor_map.hpp"

#include "../util/require.hpp"
#include "device.hpp"

namespace deep_gemm {

void check_tensor_map(const TensorMapSpec& spec) {
    constexpr uint64_t kMaxSize = uint64_t{1} << 32;
    constexpr uint64_t kMaxStrideBytes = uint64_t{1} << 40;
    constexpr uint32_t kMaxBox = 256;
    constexpr uint64_t kSpreadElements = 128;
    const bool spread = unpacks_to_bytes(spec.type);
    const uint64_t alignment = spread ? 32 : 16;
    require(spec.rank >= 1 && spec.rank <= 5, "a tensor map has 1 to 5 dimensions, not ", spec.rank);
    require(spec.address != nullptr, "a tensor map needs an address, but the tensor has none (is it empty?)");
    require(reinterpret_cast<uintptr_t>(spec.address) % alignment == 0,
            "a tensor read by TMA must start at a multiple of ", alignment, " bytes, but this one starts at ",
            spec.address);
    for (int i = 0; i < spec.rank; ++i) {
        require(spec.sizes[i] >= 1 && spec.sizes[i] <= kMaxSize, "dimension ", i,
                " of a tensor map must have 1 to 2^32 elements, not ", spec.sizes[i]);
        require(spec.box[i] >= 1 && spec.box[i] <= kMaxBox, "dimension ", i,
                " of a tensor map's box must have 1 to 256 elements, not ", spec.box[i]);
    }
    for (int i = 0; i + 1 < spec.rank; ++i)
        require(spec.strides_bytes[i] % alignment == 0 && spec.strides_bytes[i] < kMaxStrideBytes,
                "neighbours in dimension ", i + 1, " of a tensor read by TMA must lie a multiple of ", alignment,
                " bytes (below 2^40) apart, not ", spec.strides_bytes[i], " bytes");
    require(!spread || (spec.sizes[0] % kSpreadElements == 0 && spec.box[0] == kSpreadElements), "rows of ",
            name(spec.type), " must be a multiple of 128 elements and those of the box 128, not ", spec.sizes[0],
            " and ", spec.box[0]);
    require(spec.type != TensorMapType::u4 || spec.sizes[0] % 2 == 0, "rows of u4 must have an even number, not ",
            spec.sizes[0]);
    require(!spread || spec.swizzle == TensorMapSwizzle::none || spec.swizzle == TensorMapSwizzle::bytes_128,
            "a tensor map of ", name(spec.type), " must have a swizzle of 128B or none, not ", name(spec.swizzle));
    const uint32_t row_bytes = spec.box[0] * shared_bits(spec.type) / 8;
    require(row_bytes % 16 == 0, "a row of a tensor map's box must be a multiple of 16 bytes, not ", row_bytes, " (",
            spec.box[0], " of ", name(spec.type), ")");
    constexpr uint32_t kSpanBytes[] = {UINT32_MAX, 32, 64, 128};
    require(row_bytes <= kSpanBytes[static_cast<int>(spec.swizzle)], "a row of a tensor map's box has ", row_bytes,
            " bytes, more than its swizzle of ", name(spec.swizzle), " spans");
}

}  // namespace deep_gemm
