// Where the copy engine puts 16-byte units so that a column of them falls into different banks.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

/// Offset within a buffer aligned to 8 spans: 128B swizzle XORs address bits 4-6 with 7-9, 64B 4-5 with 7-8, 32B 4
/// with 7.
template <int32_t kSwizzleBytes>
DG_DEVICE uint32_t swizzled(uint32_t offset) {
    if constexpr (kSwizzleBytes <= 16) return offset;
    constexpr uint32_t kUnits = kSwizzleBytes / 16 - 1;
    return offset ^ (((offset >> 7) & kUnits) << 4);
}

}  // namespace deep_gemm
