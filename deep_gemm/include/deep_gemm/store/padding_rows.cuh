// What math warps know of rows of padding while they store a tile (tile/padding.cuh finds them).
#pragma once

#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm {

/// Of one tile after the other.
template <Constant<GemmConfig> c, typename Smem>
class PaddingRowsOf {
public:
    DG_DEVICE explicit PaddingRowsOf(const Smem& smem) : smem_(smem) {}

    /// Wait for what the role has found.
    DG_DEVICE void begin() const {
        if constexpr (!marks_padding(c)) return;
        ptx::barrier_wait(smem_.padding_known(), phase_);
    }

    DG_DEVICE bool any() const {
        uint32_t found = 0;
#pragma unroll
        for (int32_t row = 0; row < c.tile_m(); row += 32) found |= word(row);
        return found != 0;
    }

    /// Of rows from this one on, a bit for each that is padding, as far as a multiple of 32.
    DG_DEVICE uint32_t rows(int32_t first) const { return word(first) >> first % 32; }

    /// Where there are any.
    DG_DEVICE bool has(int32_t row) const { return (word(row) >> row % 32 & 1) != 0; }

    /// They may be replaced by those of the next tile.
    DG_DEVICE void end() {
        if constexpr (!marks_padding(c)) return;
        phase_ ^= 1;
        __syncwarp();
        if (ptx::lane() == 0) ptx::barrier_arrive(smem_.padding_read());
    }

private:
    DG_DEVICE uint32_t word(int32_t row) const {
        return static_cast<uint32_t>(ptx::load_shared_int(smem_.padding() + row / 32 * 4));
    }

    Smem smem_;
    uint32_t phase_ = 0;
};

}  // namespace deep_gemm
