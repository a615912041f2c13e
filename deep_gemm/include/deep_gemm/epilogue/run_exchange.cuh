// Columns of D that share a scale (epilogue/quantize.cuh) where several warps have some of them: first each warp finds
// its largest magnitudes and tells them, then, behind a barrier, the tile is finished again with what all found.
#pragma once

#include <deep_gemm/config.cuh>
#if defined(__CUDACC__)
#include <deep_gemm/ptx/maximum.cuh>
#include <deep_gemm/ptx/memory.cuh>
#endif

namespace deep_gemm {

/// `held`: columns of D, side by side, that a warp finds the largest magnitude of by itself.
constexpr bool exchanges_runs(const GemmConfig& c, int32_t held) {
    return c.output_scaling.any() && held % c.output_scaling.k != 0;
}
/// Of shared memory: a number for each row of a tile and each warp along it.
constexpr int32_t exchange_bytes(const GemmConfig& c, int32_t held) {
    return exchanges_runs(c, held) ? c.tile_n() / held * c.tile_m() * 4 : 0;
}

#if defined(__CUDACC__)
/// What a place knows of it.
template <GemmConfig c, int32_t kHeld, bool = exchanges_runs(c, kHeld)>
struct RunExchange {
    static constexpr bool kExchanges = false;
};
template <GemmConfig c, int32_t kHeld>
struct RunExchange<c, kHeld, true> {
    static constexpr bool kExchanges = true;
    uint32_t area = 0;   // in shared memory
    bool finds = false;  // or stores

    /// Row and column count within the tile.
    DG_DEVICE void tell(int32_t row, int32_t col, float largest) const {
        ptx::store_shared(place(row, col / kHeld), largest);
    }
    DG_DEVICE float told(int32_t row, int32_t col) const {
        constexpr int32_t kCols = c.output_scaling.k, kParts = kCols / kHeld;
        float largest = 0;
#pragma unroll
        for (int32_t i = 0; i < kParts; ++i)
            largest = ptx::max_or_nan(largest, ptx::load_shared(place(row, col / kCols * kParts + i)));
        return largest;
    }

private:
    DG_DEVICE uint32_t place(int32_t row, int32_t part) const { return area + (part * c.tile_m() + row) * 4; }
};
#endif

}  // namespace deep_gemm
