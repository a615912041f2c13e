// Four lanes that share a row of the fragment (mma/fragment_16x8.cuh) exchange what they have of it.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

inline constexpr int32_t kQuad = 4;           // lanes, and groups of 8 columns
inline constexpr int32_t kByteQuadCols = 64;  // of a byte each, of which a lane stores 16

/// Of four lanes that have words[i], what each has of word number `lane`: a transposition.
DG_DEVICE void exchange_in_quad(uint32_t (&words)[kQuad]) {
    const int32_t lane = threadIdx.x % kQuad;
#pragma unroll
    for (int32_t distance = 1; distance < kQuad; distance *= 2) {
        const bool upper = (lane & distance) != 0;
#pragma unroll
        for (int32_t i = 0; i < kQuad; ++i) {
            if (i & distance) continue;
            uint32_t &low = words[i], &high = words[i + distance];
            const uint32_t other = __shfl_xor_sync(0xffffffff, upper ? low : high, distance);
            (upper ? low : high) = other;
        }
    }
}

}  // namespace deep_gemm
