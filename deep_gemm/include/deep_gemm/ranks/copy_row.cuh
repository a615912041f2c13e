// A row of 16-byte pieces, copied by a warp.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

inline constexpr int32_t kPiecesAhead = 4;  // that a lane asks for before it writes the first

DG_DEVICE void copy_row_by_warp(uint4* to, const uint4* from, int32_t pieces, int32_t lane) {
    for (int32_t first = lane; first < pieces; first += 32 * kPiecesAhead) {
        uint4 kept[kPiecesAhead];
        for (int32_t i = 0; i < kPiecesAhead; ++i)
            if (first + i * 32 < pieces) kept[i] = from[first + i * 32];
        for (int32_t i = 0; i < kPiecesAhead; ++i)
            if (first + i * 32 < pieces) to[first + i * 32] = kept[i];
    }
}

}  // namespace deep_gemm
