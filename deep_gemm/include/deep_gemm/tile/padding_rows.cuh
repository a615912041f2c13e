// What math warps know of rows of padding while they store a tile (tile/padding.cuh finds them).
#pragma once

#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/smem.cuh>

namespace deep_gemm {

/// Of one tile after the other.
template <GemmConfig c>
class PaddingRows {
public:
    DG_DEVICE PaddingRows(const Smem<c>& smem, const GemmParams& params) : smem_(smem), params_(params) {}

    /// Wait for what the role has found.
    DG_DEVICE void begin() const {
        if constexpr (!marks_padding(c)) return;
        if (params_.zero_padding) ptx::barrier_wait(smem_.padding_known(), phase_);
    }

    /// Whether any of these rows of the tile is padding: 16, or all.
    DG_DEVICE bool any(int32_t first, int32_t count) const {
        if (!params_.zero_padding) return false;
        if (count == 16) return (word(first) >> first % 32 & 0xffff) != 0;
        uint32_t found = 0;
#pragma unroll
        for (int32_t row = 0; row < c.tile_m(); row += 32) found |= word(row);
        return found != 0;
    }

    DG_DEVICE bool has(int32_t row) const { return (word(row) >> row % 32 & 1) != 0; }

    /// They may be replaced by those of the next tile.
    DG_DEVICE void end() {
        if constexpr (!marks_padding(c)) return;
        if (!params_.zero_padding) return;
        phase_ ^= 1;
        __syncwarp();
        if (ptx::lane() == 0) ptx::barrier_arrive(smem_.padding_read());
    }

private:
    DG_DEVICE uint32_t word(int32_t row) const {
        return static_cast<uint32_t>(ptx::load_shared_int(smem_.padding() + row / 32 * 4));
    }

    Smem<c> smem_;
    const GemmParams& params_;
    uint32_t phase_ = 0;
};

}  // namespace deep_gemm
