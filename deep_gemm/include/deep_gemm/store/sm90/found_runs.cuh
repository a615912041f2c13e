// When all warps have told what they found of columns that share a scale (epilogue/run_exchange.cuh).
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/epilogue/run_exchange.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

inline constexpr int32_t kRunsFound = 7;  // a named barrier of the math warps

/// Of a tile, by those of its math warps that have sums.
template <GemmConfig c>
class FoundRuns {
public:
    DG_DEVICE explicit FoundRuns(const Smem<c>& smem) : smem_(smem) {}

    template <typename Place>
    DG_DEVICE void tell_place(Place& at) const {
        at.area = smem_.exchange(buffer()), at.barrier = smem_.told(buffer());
    }
    /// Nobody reads what was told of the tile before.
    DG_DEVICE void begin() const {
        if constexpr (!kAcross) wait_for_warps();
    }
    /// This warp has told what it found, and has read what it wanted of the tile before.
    DG_DEVICE void wait() const {
        if constexpr (!kAcross) return wait_for_warps();
        if constexpr (kBuffers > 1) {
            __syncwarp();
            const int32_t lane = threadIdx.x % 32;
            if (lane < run_ctas(c)) ptx::barrier_arrive_remote(smem_.told(buffer()), run_cta_rank<c>(lane, 0));
        }
        ptx::barrier_wait(smem_.told(buffer()), tile_ / kBuffers % 2);
        if (kBuffers > 1 && threadIdx.x == 0) ptx::barrier_arrive_expect(smem_.told(buffer()), told_bytes(c, kHeld));
    }
    DG_DEVICE void end() { ++tile_; }

private:
    static constexpr int32_t kHeld = fragment_d_cols(c), kBarriers = exchange_barriers(c, kHeld);
    static constexpr int32_t kBuffers = kBarriers > 0 ? kBarriers : 1;

public:
    /// Of a CTA's thread that knows how many bytes come, and of warps that have told theirs.
    static constexpr int32_t kArrivals = 1 + (kBuffers > 1 ? c.sm90.math_warpgroups * 4 * run_ctas(c) : 0);

private:
    static constexpr bool kAcross = exchanges_across(c, kHeld);
    static_assert(!kAcross || !c.split_k.last_tiles, "who shares last tiles has no barriers for it");

    DG_DEVICE uint32_t buffer() const { return tile_ % kBuffers; }
    static DG_DEVICE void wait_for_warps() { ptx::named_barrier_wait(kRunsFound, c.sm90.math_warpgroups * 128); }

    const Smem<c> smem_;
    uint32_t tile_ = 0;
};

}  // namespace deep_gemm
