// Loads by ordinary threads, of bytes that need not be there.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

/// `valid` bytes, zeros behind them.
template <bool kAligned>
DG_DEVICE uint4 load_bytes(const uint8_t* source, int32_t valid) {
    if (kAligned && valid >= 16) return __ldg(reinterpret_cast<const uint4*>(source));
    uint32_t words[4] = {};
#pragma unroll
    for (int32_t i = 0; i < 16; ++i)
        if (i < valid) words[i / 4] |= static_cast<uint32_t>(source[i]) << (8 * (i % 4));
    return make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace deep_gemm
